"""Validation of pods and pod templates, after pkg/apis/core/validation; `containers.py` validates containers.

Of volume sources only claims, CSI drivers, host paths, and certificates are validated in detail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from wharfinger.api.fields import FieldError, duplicate, forbidden, immutable, invalid, required
from wharfinger.api.known_specs import KnownParts, KnownSpecs
from wharfinger.api.names import dns_label, dns_subdomain
from wharfinger.api.numbers import parse_int64
from wharfinger.api.registry import Document, ValidateFn
from wharfinger.api.token_volumes import is_token_volume
from wharfinger.api.validation.common import (
    MAX_INT32,
    checked,
    name_faults,
    not_negative,
    one_of,
    port_faults,
    port_name_faults,
    unique_name_faults,
)
from wharfinger.api.validation.containers import host_path_faults, pod_security_faults, runtime_faults
from wharfinger.api.validation.devices.pods import mirror_claims_faults, pod_claim_statuses_faults, pod_claims_faults
from wharfinger.api.validation.projected_volumes import projected_faults
from wharfinger.api.validation.resources import (
    AllowName,
    allow_unqualified,
    container_resources_faults,
    node_resources_faults,
    pod_resources_faults,
)
from wharfinger.api.validation.scheduling import affinity_faults, gates_faults, spread_faults, tolerations_faults
from wharfinger.api.validation.selectors import annotations_faults, each, labels_faults

PartFaults = Callable[[Any, str], Iterator[FieldError]]

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_COST = re.compile(r"0|-[0-9]+|[1-9][0-9]*")
_MUTABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)


def pod_validator(unqualified: AllowName = allow_unqualified) -> ValidateFn:
    """Validation of pods; `unqualified` decides about resource names without a slash (see `validation.resources`)."""

    faultless = KnownSpecs()
    keys = [b""]  # of the new document that is being validated

    def known(document: Document) -> bool:
        keys[0] = faultless.key(document.get("spec"))
        return keys[0] in faultless

    def rules(document: Document, old: Document | None) -> Iterator[FieldError]:
        metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
        yield from _annotation_faults(metadata.get("annotations") or {}, spec)
        key = keys[0] if old is None else faultless.key(spec)
        if key not in faultless:
            faults = list(pod_spec_faults(spec, "spec", unqualified))
            yield from faults
            if not faults:
                faultless.add(key)
        if old is None:
            yield from _create_faults(spec)
            yield from mirror_claims_faults(document)
        elif not _is_same(spec, old.get("spec")):
            yield from update_faults(spec, old.get("spec") or {})

    return checked("v1", "Pod", rules, known)


def _is_same(spec: Mapping[str, Any], before: object) -> bool:
    """Whether a spec is its own past, as that of a restored pod is, so that nothing can have changed."""
    return spec is before and not spec.get("schedulingGates")


def pod_status_validator() -> ValidateFn:
    """Validation of a write to `pods/status`; the spec cannot change there."""

    def rules(document: Document, old: Document | None) -> Iterator[FieldError]:
        status, before = document.get("status") or {}, (old or {}).get("status") or {}
        spec = document.get("spec") or {}
        yield from _annotation_faults((document.get("metadata") or {}).get("annotations") or {}, spec)
        nominated = status.get("nominatedNodeName") or ""
        if nominated and nominated != before.get("nominatedNodeName"):
            yield from name_faults(dns_subdomain, nominated, "status.nominatedNodeName")
            if spec.get("nodeName"):
                detail = "may not be set on pods that are already bound to a node"
                yield forbidden("status.nominatedNodeName", detail)
        yield from not_negative(status.get("observedGeneration"), "status.observedGeneration")
        if status.get("qosClass") != before.get("qosClass"):
            yield immutable("status.qosClass", status.get("qosClass"))
        yield from pod_claim_statuses_faults(document)

    return checked("v1", "Pod", rules)


def pod_resize_validator(unqualified: AllowName = allow_unqualified) -> ValidateFn:
    """Validation of a write to `pods/resize`: only cpu and memory may change, and no container may be added or removed."""

    def rules(document: Document, old: Document | None) -> Iterator[FieldError]:
        spec, before = document.get("spec") or {}, (old or {}).get("spec") or {}
        yield from pod_spec_faults(spec, "spec", unqualified)
        for part in ("containers", "initContainers"):
            for index, container in each(spec, part):
                past = (before.get(part) or [])[index : index + 1]
                if past and _other_resources(container) != _other_resources(past[0]):
                    yield forbidden(f"spec.{part}[{index}].resources", "only cpu and memory resources are mutable")

    return checked("v1", "Pod", rules)


def _other_resources(container: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    resources = container.get("resources") or {}
    return {
        part: {name: value for name, value in (resources.get(part) or {}).items() if name not in ("cpu", "memory")}
        for part in ("requests", "limits")
    }


def pod_ephemeral_validator(unqualified: AllowName = allow_unqualified) -> ValidateFn:
    """Validation of a write to `pods/ephemeralcontainers`: containers are added, never changed or removed."""

    def rules(document: Document, old: Document | None) -> Iterator[FieldError]:
        spec, before = document.get("spec") or {}, (old or {}).get("spec") or {}
        yield from pod_spec_faults(spec, "spec", unqualified)
        now = {container.get("name"): container for _, container in each(spec, "ephemeralContainers")}
        for _, container in each(before, "ephemeralContainers"):
            name = container.get("name")
            if name not in now:
                yield forbidden(
                    "spec.ephemeralContainers", f"existing ephemeral containers {name!r} may not be removed"
                )
            elif now[name] != container:
                yield forbidden(
                    "spec.ephemeralContainers", f"existing ephemeral containers {name!r} may not be changed"
                )

    return checked("v1", "Pod", rules)


def template_faults(template: Mapping[str, Any], path: str, unqualified: AllowName = allow_unqualified) -> Iterator[FieldError]:  # fmt: skip
    """Faults of the pod template of a workload."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    yield from labels_faults(metadata.get("labels") or {}, f"{path}.labels")
    yield from annotations_faults(metadata.get("annotations") or {}, f"{path}.annotations")
    yield from _annotation_faults(metadata.get("annotations") or {}, spec, f"{path}.annotations")
    yield from pod_spec_faults(spec, f"{path}.spec", unqualified)
    if spec.get("ephemeralContainers"):
        yield forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")


def deletion_cost_is_valid(text: str) -> bool:
    """A 32-bit decimal number without plus sign and leading zeros."""
    number = parse_int64(text) if _COST.fullmatch(text) else None
    return number is not None and -MAX_INT32 - 1 <= number <= MAX_INT32


def _annotation_faults(
    annotations: Mapping[str, str], spec: Mapping[str, Any], path: str = "metadata.annotations"
) -> Iterator[FieldError]:
    cost = annotations.get(DELETION_COST)
    if cost is not None and not deletion_cost_is_valid(cost):
        yield invalid(f"{path}[{DELETION_COST}]", cost, "must be a 32bit integer")
    mirror = annotations.get("kubernetes.io/config.mirror")
    if mirror is not None and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        yield invalid(f"{path}[kubernetes.io/config.mirror]", mirror, detail)


def _create_faults(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    if spec.get("ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def pod_spec_faults(spec: Mapping[str, Any], path: str, unqualified: AllowName = allow_unqualified) -> Iterator[FieldError]:  # fmt: skip
    volumes: set[str] = set()
    yield from _volumes_faults(spec, f"{path}.volumes", volumes)
    yield from _all_containers_faults(spec, path, volumes, unqualified)
    if spec.get("resources") is not None:
        yield from pod_resources_faults(spec["resources"], f"{path}.resources")
    yield from one_of(spec.get("restartPolicy"), ("Always", "OnFailure", "Never"), f"{path}.restartPolicy")
    policies = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    yield from one_of(spec.get("dnsPolicy"), policies, f"{path}.dnsPolicy")
    for part, find, known in _PARTS:
        if value := spec.get(part):
            here = f"{path}.{part}"
            yield from find(value, here) if known is None else known.faults(value, find, here)
    for name, rule in _NAMES:
        if spec.get(name):
            yield from name_faults(rule, spec[name], f"{path}.{name}")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MAX_INT32:
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {MAX_INT32}, inclusive")
    if preemption := spec.get("preemptionPolicy"):
        yield from one_of(preemption, ("PreemptLowerPriority", "Never"), f"{path}.preemptionPolicy")
    if overhead := spec.get("overhead"):
        yield from node_resources_faults(overhead, f"{path}.overhead")
    yield from pod_claims_faults(spec, path)


_PARTS: tuple[tuple[str, PartFaults, KnownParts | None], ...] = (
    ("nodeSelector", labels_faults, KnownParts()),
    ("securityContext", pod_security_faults, KnownParts()),
    ("affinity", affinity_faults, None),
    ("schedulingGates", gates_faults, None),
    ("topologySpreadConstraints", spread_faults, None),
    ("tolerations", tolerations_faults, KnownParts()),
)
_NAMES = (
    ("serviceAccountName", dns_subdomain),
    ("nodeName", dns_subdomain),
    ("hostname", dns_label),
    ("subdomain", dns_label),
    ("priorityClassName", dns_subdomain),
    ("runtimeClassName", dns_subdomain),
)


def _volumes_faults(spec: Mapping[str, Any], path: str, names: set[str]) -> Iterator[FieldError]:
    for index, volume in each(spec, "volumes"):
        here = f"{path}[{index}]"
        yield from unique_name_faults(dns_label, volume.get("name") or "", f"{here}.name", names)
        sources = [source for source, value in volume.items() if source != "name" and value is not None]
        if not sources:
            yield required(here, "must specify a volume type")
        for source in sources[1:]:
            yield forbidden(f"{here}.{source}", "may not specify more than 1 volume type")
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("claimName"):
            yield required(f"{here}.persistentVolumeClaim.claimName")
        if volume.get("hostPath") is not None and sources[0] == "hostPath":
            yield from host_path_faults(volume["hostPath"], f"{here}.hostPath")
        projected = volume.get("projected")
        if projected is not None and not is_token_volume(volume):
            yield from projected_faults(projected, f"{here}.projected")
        csi = volume.get("csi")
        if csi is not None and not csi.get("driver"):
            yield required(f"{here}.csi.driver")


def _all_containers_faults(
    spec: Mapping[str, Any], path: str, volumes: set[str], unqualified: AllowName
) -> Iterator[FieldError]:
    names: set[str] = set()
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    taken: set[tuple[Any, ...]] = set()
    for part in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in each(spec, part):
            here = f"{path}.{part}[{index}]"
            yield from unique_name_faults(dns_label, container.get("name") or "", f"{here}.name", names)
            yield from _container_faults(container, here, volumes, unqualified)
            if part == "containers":
                if container.get("ports"):
                    yield from _host_port_faults(container, here, taken)
            elif part == "initContainers":
                yield from _init_faults(container, here)


_INIT_ONLY_SIDECARS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


def _init_faults(container: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    policy = container.get("restartPolicy")
    yield from one_of(policy, ("Always", "OnFailure", "Never"), f"{path}.restartPolicy", empty=True)
    if policy != "Always":
        for name in _INIT_ONLY_SIDECARS:
            if container.get(name) is not None:
                detail = "may not be set for init containers without restartPolicy=Always"
                yield forbidden(f"{path}.{name}", detail)


def _container_faults(
    container: Mapping[str, Any], path: str, volumes: set[str], unqualified: AllowName
) -> Iterator[FieldError]:
    image = container.get("image") or ""
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    policies = ("File", "FallbackToLogsOnError")
    yield from one_of(container.get("terminationMessagePolicy"), policies, f"{path}.terminationMessagePolicy")
    yield from one_of(container.get("imagePullPolicy"), ("Always", "IfNotPresent", "Never"), f"{path}.imagePullPolicy")
    if container.get("ports"):
        yield from _ports_faults(container, f"{path}.ports")
    yield from runtime_faults(container, path, volumes)
    if resources := container.get("resources"):
        known = _KNOWN_RESOURCES.get(unqualified)
        if known is None:
            known = _KNOWN_RESOURCES[unqualified] = KnownParts()
        yield from known.faults(
            resources, lambda given, here: container_resources_faults(given, here, unqualified), f"{path}.resources"
        )


_KNOWN_RESOURCES: dict[AllowName, KnownParts] = {}  # by who decides about names


def _ports_faults(container: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in each(container, "ports"):
        here = f"{path}[{index}]"
        if name := port.get("name"):
            yield from name_faults(port_name_faults, name, f"{here}.name")
            if name in names:
                yield duplicate(f"{here}.name", name)
            names.add(name)
        if not port.get("containerPort"):
            yield required(f"{here}.containerPort")
        else:
            yield from port_faults(port["containerPort"], f"{here}.containerPort")
        if port.get("hostPort"):
            yield from port_faults(port["hostPort"], f"{here}.hostPort")
        yield from one_of(port.get("protocol"), ("SCTP", "TCP", "UDP"), f"{here}.protocol")


def _host_port_faults(container: Mapping[str, Any], path: str, taken: set[tuple[Any, ...]]) -> Iterator[FieldError]:
    for index, port in each(container, "ports"):
        if not port.get("hostPort"):
            continue
        mark = (port.get("protocol"), port.get("hostIP") or "", port["hostPort"])
        if mark in taken:
            yield duplicate(f"{path}.ports[{index}].hostPort", f"{mark[0]}/{mark[1]}/{mark[2]}")
        taken.add(mark)


def update_faults(spec: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of an update of a pod, most fields of which are immutable."""
    for part in ("containers", "initContainers"):
        if len(spec.get(part) or ()) != len(before.get(part) or ()):
            yield forbidden(f"spec.{part}", "pod updates may not add or remove containers")
            return
    yield from _deadline_faults(spec, before)
    yield from _toleration_update_faults(spec.get("tolerations") or [], before.get("tolerations") or [])
    yield from _gate_update_faults(spec.get("schedulingGates") or [], before.get("schedulingGates") or [])
    munged = _munged(spec, before)
    if before.get("schedulingGates"):
        yield from _gated_faults(munged, before)
    if munged != _munged(before, before):
        changed = sorted(name for name in {*munged, *before} if munged.get(name) != before.get(name))
        yield forbidden(
            "spec", f"pod updates may not change fields other than {_MUTABLE}; changed: {', '.join(changed)}"
        )


def _deadline_faults(spec: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    path = "spec.activeDeadlineSeconds"
    now, past = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if now is None:
        if past is not None:
            yield invalid(path, None, "must not update from a positive integer to nil value")
    elif past is not None and past < now:
        yield invalid(path, now, "must be less than or equal to previous value")


def _toleration_update_faults(now: Sequence[Any], past: Sequence[Any]) -> Iterator[FieldError]:
    def mark(toleration: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in toleration.items() if name != "tolerationSeconds" and value}

    marks = [mark(toleration) for toleration in now]
    if any(mark(toleration) not in marks for toleration in past):
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")


def _gate_update_faults(now: Sequence[Any], past: Sequence[Any]) -> Iterator[FieldError]:
    known = {gate.get("name") for gate in past}
    for index, gate in enumerate(now):
        if gate.get("name") not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", detail)


def _munged(spec: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with its mutable fields reset to their old values."""
    munged = {name: value for name, value in spec.items() if value is not None}
    for part in ("containers", "initContainers"):
        past = before.get(part) or []
        now = spec.get(part) or []
        if now:
            munged[part] = [{**c, "image": p.get("image")} for c, p in zip(now, past)]
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        munged.pop(name, None)
        if before.get(name) is not None:
            munged[name] = before[name]
    grace = before.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and munged.get("terminationGracePeriodSeconds") == 1:
        munged["terminationGracePeriodSeconds"] = grace
    return munged


def _gated_faults(munged: dict[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    """The node selector and required node affinity of a gated pod may become narrower. Resets them in place for the
    comparison."""
    selector, past = munged.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if selector != past:
        if any(selector.get(key) != value for key, value in past.items()):
            detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            yield invalid("spec.nodeSelector", selector, detail)
        _put_back(munged, before, "nodeSelector")
    affinity, old_affinity = munged.get("affinity") or {}, before.get("affinity") or {}
    node, old_node = affinity.get("nodeAffinity"), old_affinity.get("nodeAffinity")
    if node != old_node:
        yield from _node_affinity_faults(node or {}, old_node or {})
        merged = {name: value for name, value in affinity.items() if name != "nodeAffinity" and value is not None}
        if old_node is not None:
            merged["nodeAffinity"] = old_node
        if merged or before.get("affinity") is not None:
            munged["affinity"] = merged
        else:
            munged.pop("affinity", None)


def _put_back(munged: dict[str, Any], before: Mapping[str, Any], name: str) -> None:
    munged.pop(name, None)
    if before.get(name) is not None:
        munged[name] = before[name]


def _node_affinity_faults(now: Mapping[str, Any], past: Mapping[str, Any]) -> Iterator[FieldError]:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    if past.get(name) is None:
        return
    path = f"spec.affinity.nodeAffinity.{name}.nodeSelectorTerms"
    old_terms = past[name].get("nodeSelectorTerms") or []
    terms = (now.get(name) or {}).get("nodeSelectorTerms") or []
    if old_terms and len(old_terms) != len(terms):
        yield invalid(path, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        return
    for index, (term, old_term) in enumerate(zip(terms, old_terms)):
        if not _only_additions(term, old_term):
            yield invalid(f"{path}[{index}]", term, "only additions are allowed (no mutations or deletions)")


def _only_additions(term: Mapping[str, Any], past: Mapping[str, Any]) -> bool:
    if not past.get("matchExpressions") and not past.get("matchFields"):
        # An empty term matches nothing, so adding requirements to it would widen the affinity.
        return not term.get("matchExpressions") and not term.get("matchFields")
    for part in ("matchExpressions", "matchFields"):
        old_part = past.get(part) or []
        if (term.get(part) or [])[: len(old_part)] != old_part:
            return False
    return True
