"""Validation of containers: environment, mounts, probes, hooks and security contexts, after pkg/apis/core/validation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wharfinger.api.fields import FieldError, forbidden, invalid, not_supported, required
from wharfinger.api.validation.common import MAX_INT32, name_faults, not_negative, one_of, port_faults, port_name_faults
from wharfinger.api.validation.selectors import each

_ENV_NAME = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_OTHER_FIELDS = {"metadata.labels", "metadata.annotations", "spec.restartPolicy", "spec.schedulerName", "status.phase"}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")


def runtime_faults(container: Mapping[str, Any], path: str, volumes: set[str]) -> Iterator[FieldError]:
    yield from _env_faults(container, f"{path}.env")
    yield from _mount_faults(container, f"{path}.volumeMounts", volumes)
    for name in _PROBES:
        if container.get(name) is not None:
            yield from _probe_faults(container[name], name, f"{path}.{name}")
    hooks = container.get("lifecycle") or {}
    for name in ("postStart", "preStop"):
        if hooks.get(name) is not None:
            yield from _handler_faults(
                hooks[name], f"{path}.lifecycle.{name}", ("exec", "httpGet", "tcpSocket", "sleep")
            )
    context = container.get("securityContext")
    if context is not None:
        yield from _security_faults(context, f"{path}.securityContext")
        if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            yield invalid(f"{path}.securityContext", context, detail)


# Environment


def _env_faults(container: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for index, variable in each(container, "env"):
        here, name = f"{path}[{index}]", variable.get("name") or ""
        if not name:
            yield required(f"{here}.name")
        elif not re.fullmatch(r"[ -<>-~]+", name):
            yield invalid(f"{here}.name", name, _ENV_NAME)
        source = variable.get("valueFrom")
        if source is not None:
            yield from _source_faults(variable, source, f"{here}.valueFrom")


def _source_faults(variable: Mapping[str, Any], source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    given = [name for name in _SOURCES if source.get(name) is not None]
    if source.get("fieldRef") is not None:
        yield from _field_faults(source["fieldRef"], f"{path}.fieldRef")
    if source.get("resourceFieldRef") is not None and not source["resourceFieldRef"].get("resource"):
        yield required(f"{path}.resourceFieldRef.resource")
    for name in ("configMapKeyRef", "secretKeyRef"):
        if source.get(name) is not None and not source[name].get("key"):
            yield required(f"{path}.{name}.key")
    if not given:
        listed = ", ".join(f"`{name}`" for name in _SOURCES[:-1])
        yield invalid(path, "", f"must specify one of: {listed} or `{_SOURCES[-1]}`")
    elif variable.get("value"):
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield invalid(path, "", "may not have more than one field specified at a time")


def _field_faults(ref: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    field = ref.get("fieldPath") or ""
    if not ref.get("apiVersion"):
        yield required(f"{path}.apiVersion")
    elif not field:
        yield required(f"{path}.fieldPath")
    elif field in _ENV_FIELDS or re.fullmatch(r"metadata\.(labels|annotations)\['.+'\]", field):
        return
    elif field in _OTHER_FIELDS:
        yield not_supported(f"{path}.fieldPath", field, _ENV_FIELDS)
    else:
        yield invalid(f"{path}.fieldPath", field, f"error converting fieldPath: field label not supported: {field}")


# Mounts


def _mount_faults(container: Mapping[str, Any], path: str, volumes: set[str]) -> Iterator[FieldError]:
    places: set[str] = set()
    for index, mount in each(container, "volumeMounts"):
        here, name, place = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{here}.name")
        if name not in volumes:
            yield FieldError(f"{here}.name", "FieldValueNotFound", f'Not found: "{name}"')
        if not place:
            yield required(f"{here}.mountPath")
        if place in places:
            yield invalid(f"{here}.mountPath", place, "must be unique")
        places.add(place)
        if ".." in (mount.get("subPath") or "").split("/"):
            yield invalid(f"{here}.subPath", mount["subPath"], "must not contain '..'")
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield invalid(f"{here}.subPathExpr", mount["subPathExpr"], "subPathExpr and subPath are mutually exclusive")


def host_path_faults(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    place = source.get("path") or ""
    if not place:
        yield required(f"{path}.path")
    elif ".." in place.split("/"):
        yield invalid(f"{path}.path", place, "must not contain '..'")
    kinds = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
    if source.get("type") is not None and source["type"] not in kinds:
        yield not_supported(f"{path}.type", source["type"], kinds)


# Probes and hooks


def _probe_faults(probe: Mapping[str, Any], name: str, path: str) -> Iterator[FieldError]:
    yield from _handler_faults(probe, path, ("exec", "httpGet", "tcpSocket", "grpc"))
    for count in _PROBE_COUNTS:
        yield from not_negative(probe.get(count), f"{path}.{count}")
    grace = probe.get("terminationGracePeriodSeconds")
    if name == "readinessProbe":
        if grace is not None:
            yield invalid(f"{path}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes")
        return
    if grace is not None and grace <= 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")
    if probe.get("successThreshold", 1) not in (None, 1):
        yield invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def _handler_faults(handler: Mapping[str, Any], path: str, kinds: Sequence[str]) -> Iterator[FieldError]:
    given = [kind for kind in kinds if handler.get(kind) is not None]
    if not given:
        yield required(path, "must specify a handler type")
    for number, kind in enumerate(given):
        here, action = f"{path}.{kind}", handler[kind]
        if number:
            yield forbidden(here, "may not specify more than 1 handler type")
        elif kind == "exec":
            if not action.get("command"):
                yield required(f"{here}.command")
        elif kind == "sleep":
            yield from not_negative(action.get("seconds"), f"{here}.seconds")
        else:
            if kind == "httpGet" and not action.get("path"):
                yield required(f"{here}.path")
            yield from _port_faults(action.get("port"), f"{here}.port")
            if kind == "httpGet":
                yield from one_of(action.get("scheme"), ("HTTP", "HTTPS"), f"{here}.scheme")


def _port_faults(port: int | str | None, path: str) -> Iterator[FieldError]:
    if isinstance(port, str):
        yield from name_faults(port_name_faults, port, path)
    else:
        yield from port_faults(port or 0, path)


# Security contexts


def pod_security_faults(context: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if context.get("fsGroup") is not None:
        yield from id_faults(context["fsGroup"], f"{path}.fsGroup")
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from id_faults(group, f"{path}.supplementalGroups[{index}]")
    changes = ("Always", "OnRootMismatch")
    for name in ("runAsUser", "runAsGroup"):
        if context.get(name) is not None:
            yield from id_faults(context[name], f"{path}.{name}")
    yield from one_of(context.get("fsGroupChangePolicy"), changes, f"{path}.fsGroupChangePolicy", empty=True)
    yield from _profiles_faults(context, path)


def _security_faults(context: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name in ("runAsUser", "runAsGroup"):
        if context.get(name) is not None:
            yield from id_faults(context[name], f"{path}.{name}")
    yield from _profiles_faults(context, path)


def _profiles_faults(context: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name in ("seccompProfile", "appArmorProfile"):
        if context.get(name) is not None:
            yield from _profile_faults(context[name], f"{path}.{name}")


def id_faults(number: int, path: str) -> Iterator[FieldError]:
    if not 0 <= number <= MAX_INT32:
        yield invalid(path, number, f"must be between 0 and {MAX_INT32}, inclusive")


def _profile_faults(profile: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        yield required(f"{path}.type", "type is required when seccompProfile is set" if "seccomp" in path else "")
    elif kind == "Localhost":
        if not local:
            yield required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost" if "seccomp" in path else "must be set when AppArmor type is Localhost")  # fmt: skip
        return
    elif kind not in ("RuntimeDefault", "Unconfined"):
        yield not_supported(f"{path}.type", kind, ("Localhost", "RuntimeDefault", "Unconfined"))
    if local is not None:
        said = "seccomp" if "seccomp" in path else "AppArmor"
        yield invalid(f"{path}.localhostProfile", local, f"can only be set when {said} type is Localhost")
