"""Warnings about a pod or pod template, in the order of pkg/api/pod/warnings.go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wharfinger.api.known_specs import KnownSpecs
from wharfinger.api.registry import Document
from wharfinger.api.warnings.common import address_warnings, deprecated_label, fraction_warnings, node_term_warnings
from wharfinger.api.warnings.volumes import volume_warnings

_DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_POD_SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
_CONTAINER_SECCOMP = "container.seccomp.security.alpha.kubernetes.io/"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_NO_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_BYTES = ("memory", "ephemeral-storage")
_ON_NODES = frozenset(("nodeSelector", "affinity", "topologySpreadConstraints"))

_unremarkable = KnownSpecs()  # what is found in a spec does not depend on where it stands

Placed = tuple[Document, str]  # a container and its path


def pod_spec_warnings(pod: Document | None, path: str) -> Iterator[str]:
    """Warnings about a pod (`path` is empty) or a pod template."""
    if not pod:
        return
    before = f"{path}." if path else ""
    spec, at = pod.get("spec") or {}, f"{before}spec"
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    key = b"" if annotations else _unremarkable.key(spec)
    if key in _unremarkable:
        return
    remarkable = False
    for warning in _warnings(spec, annotations, before, at):
        remarkable = True
        yield warning
    if not remarkable:
        _unremarkable.add(key)


def _warnings(spec: Document, annotations: Document, before: str, at: str) -> Iterator[str]:
    containers = [
        (container, f"{at}.{group}[{index}]")
        for group in ("initContainers", "containers", "ephemeralContainers")
        for index, container in enumerate(spec.get(group) or ())
    ]
    if not _ON_NODES.isdisjoint(spec):
        yield from _node_warnings(spec, at)
    for key, why in _DEPRECATED_ANNOTATIONS.items() if annotations else ():
        if key in annotations:
            yield f"{before}metadata.annotations[{key}]: {why}"
    if spec.get("volumes"):
        yield from volume_warnings(spec["volumes"], f"{at}.volumes")
    if spec.get("hostAliases"):
        yield from _repeated(spec, "hostAliases", "ip", at)
    if spec.get("imagePullSecrets"):
        yield from _repeated(spec, "imagePullSecrets", "name", at)
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{at}.imagePullSecrets[{index}].name: invalid empty name ""'
    if spec.get("overhead"):
        yield from fraction_warnings(spec["overhead"], _BYTES, f"{at}.overhead")
    security = spec.get("securityContext") or {}
    if _POD_SECCOMP in annotations and not security.get("seccompProfile"):
        yield f"{before}metadata.annotations[{_POD_SECCOMP}]: {_NO_SECCOMP}"
    for container, place in containers:
        if annotations:
            yield from _profile_warnings(container, security, annotations, f"{before}metadata.annotations")
        resources = container.get("resources") or {}
        for name in _BYTES if resources else ():
            for kind in ("limits", "requests"):
                if name in (amounts := resources.get(kind) or {}):
                    yield from fraction_warnings(amounts, (name,), f"{place}.resources.{kind}")
        if len(container.get("env") or ()) > 1:
            yield from _environment_warnings(container["env"], f"{place}.env")
    if any(container.get("ports") for container, _ in containers):
        yield from _port_warnings(containers)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        why = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{at}.terminationGracePeriodSeconds: {why}"
    if spec.get("affinity"):
        yield from _affinity_warnings(spec["affinity"], f"{at}.affinity")
    for index, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield from address_warnings(server, f"{at}.dnsConfig.nameservers[{index}]")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield from address_warnings(alias.get("ip"), f"{at}.hostAliases[{index}].ip")


def _node_warnings(spec: Document, at: str) -> Iterator[str]:
    for key in spec.get("nodeSelector") or ():
        if why := deprecated_label(key):
            yield f"{at}.nodeSelector[{key}]: {why}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    path = f"{at}.affinity.nodeAffinity"
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for index, term in enumerate(needed.get("nodeSelectorTerms") or ()):
        place = f"{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{index}]"
        yield from node_term_warnings(term, place, values=False)
    for index, wish in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        place = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}].preference"
        yield from node_term_warnings(wish.get("preference") or {}, place, values=True)
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        place, key = f"{at}.topologySpreadConstraints[{index}]", constraint.get("topologyKey")
        if why := deprecated_label(key):
            yield f"{place}.topologyKey: {key} is {why}"
        if constraint.get("labelSelector") is None:
            yield f"{place}.labelSelector: a null labelSelector results in matching no pod"


def _repeated(spec: Document, field: str, name: str, at: str) -> Iterator[str]:
    seen: set[Any] = set()
    for index, item in enumerate(spec.get(field) or ()):
        value = item.get(name) or ""
        if value in seen:
            yield f'{at}.{field}[{index}].{name}: duplicate {name} "{value}"'
        seen.add(value)


def _profile_warnings(container: Document, pod: Document, annotations: Document, path: str) -> Iterator[str]:
    """Annotations that were replaced by fields."""
    security, name = container.get("securityContext") or {}, container.get("name", "")
    if f"{_CONTAINER_SECCOMP}{name}" in annotations and not security.get("seccompProfile"):
        yield f"{path}[{_CONTAINER_SECCOMP}{name}]: {_NO_SECCOMP}"
    profile = annotations.get(f"{_APP_ARMOR}{name}")
    if profile is None or security.get("appArmorProfile"):
        return
    if not pod.get("appArmorProfile") or pod["appArmorProfile"] != _app_armor(profile):
        yield f'{path}[{_APP_ARMOR}{name}]: deprecated since v1.30; use the "appArmorProfile" field instead'


def _app_armor(annotation: str) -> Document | None:
    if annotation == "unconfined":
        return {"type": "Unconfined"}
    if annotation == "runtime/default":
        return {"type": "RuntimeDefault"}
    if annotation.startswith("localhost/") and annotation != "localhost/":
        return {"type": "Localhost", "localhostProfile": annotation.removeprefix("localhost/")}
    return None


def _environment_warnings(variables: list[Document], path: str) -> Iterator[str]:
    """A repeated name is intended only if the new value refers to the old one."""
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name, value = variable.get("name", ""), variable.get("value") or ""
        if name not in seen:
            seen.add(name)
            continue
        old = f"$({name})"
        if variable.get("valueFrom") is not None or value == old or old not in value:
            yield f'{path}[{index}]: hides previous definition of "{name}", which may be dropped when using apply'


def _port_warnings(containers: list[Placed]) -> Iterator[str]:
    ports = [
        (port, f"{place}.ports[{index}]")
        for container, place in containers
        for index, port in enumerate(container.get("ports") or ())
    ]
    known: dict[tuple[Any, Any], list[Placed]] = {}
    for port, place in ports:
        if port.get("hostIP") and not port.get("hostPort"):
            yield f"{place}: hostIP set without hostPort: {_shown(port)}"
        others = known.setdefault((port.get("containerPort"), port.get("protocol", "TCP")), [])
        for other, elsewhere in others:
            if how := _clash(port, other):
                yield f"{place}: {how} port definition with {elsewhere}"
        others.append((port, place))
    names: dict[str, str] = {}
    for port, place in ports:
        if not (name := port.get("name")):
            continue
        first = names.setdefault(name, place)
        if first != place:
            use = f"services and probes that select ports by name will use {first}"
            yield f'{place}: duplicate port name "{name}" with {first}, {use}'


def _clash(port: Document, other: Document) -> str:
    mine, theirs = port.get("hostPort") or 0, other.get("hostPort") or 0
    address, elsewhere = port.get("hostIP") or "", other.get("hostIP") or ""
    if (mine, address) == (theirs, elsewhere):
        return "duplicate"
    if not mine or not theirs:
        return "overlapping"
    return "dangerously ambiguous" if mine == theirs and bool(address) != bool(elsewhere) else ""


def _shown(port: Document) -> str:
    """The structure as Go prints it."""
    parts = (("Name", ""), ("HostPort", 0), ("ContainerPort", 0), ("Protocol", "TCP"), ("HostIP", ""))
    fields = (f"{name}:{port.get(name[0].lower() + name[1:], empty)}" for name, empty in parts)
    return f"{{{' '.join(fields)}}}"


def _affinity_warnings(affinity: Document, path: str) -> Iterator[str]:
    none = "a null labelSelector results in matching no pod"
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        for index, term in enumerate(terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
            if term.get("labelSelector") is None:
                yield f"{path}.{kind}.requiredDuringSchedulingIgnoredDuringExecution[{index}].labelSelector: {none}"
        for index, wish in enumerate(terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
            if (wish.get("podAffinityTerm") or {}).get("labelSelector") is None:
                place = f"{path}.{kind}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
                yield f"{place}.podAffinityTerm.labelSelector: {none}"
