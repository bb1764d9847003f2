"""Defaults of pods and pod templates."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.api.defaults.walk import (
    canonical_quantities,
    child,
    children,
    drop_nulls,
    fill,
    fill_number,
    fill_text,
    made_child,
    restore,
)
from wharfinger.api.known_specs import spec_pattern
from wharfinger.api.quantity import BadQuantity, format_nano
from wharfinger.api.registry import Document
from wharfinger.api.resources import is_pod_level, limits_nano, qos_class, requests_nano
from wharfinger.api.token_volumes import is_token_volume
from wharfinger.api.views import Pod, view

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


_KEPT = 512  # specs to cache; the pods of a workload have equal ones
_LONGEST = 32 * 1024
_defaulted: dict[bytes, bytes] = {}
"""Patterns of specs before and after defaulting."""
_unbound: dict[bytes, bytes] = {}
"""The same of specs without a node as they are, which are found without looking for their pattern."""
_once: set[int] = set()
"""Hashes of patterns seen before. Only specs that come again are cached: to cache one takes as long as to default it."""
_MOST_HASHES = 8192
_qos_known: dict[bytes, str] = {}
"""QoS classes by the resources of pod and containers as JSON."""
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Document).decode


_NEVER_NULL = ("apiVersion", "kind", "spec")  # of the spec, nulls are found when it is encoded


def default_pod(document: Document) -> None:
    for name, value in [*document.items()]:
        if value is None:
            del document[name]
        elif name not in _NEVER_NULL:
            drop_nulls(value)
    made_child(document, "spec")
    spec = _with_defaults(document)
    status = child(document, "status")
    if status.get("qosClass") and not spec.get("nodeName"):
        status["qosClass"] = _qos(document)  # mutating admission may have changed its resources
    _container_statuses(status)


def _with_defaults(document: Document) -> Document:
    """The spec of a pod with defaults."""
    if not isinstance(document["spec"], dict):
        return {}  # validation reports it
    spec: Document = document["spec"]
    given = _as_json(spec)
    if not given or b"null" in given:
        drop_nulls(spec)
        given = _as_json(spec)
    seen = _unbound.get(given)
    if seen is not None:
        if seen != given:
            document["spec"] = spec = _decode(seen)
        return spec
    pattern = spec_pattern(given)
    known = _defaulted.get(pattern.data)
    if known is not None:
        made = pattern.filled(known)
        if not pattern.node:
            if len(_unbound) >= _KEPT:
                _unbound.clear()
            _unbound[given] = made
        if made != given:
            document["spec"] = spec = _decode(made)
        return spec
    _default_spec_of_pod(document, spec)
    if _comes_again(pattern.data) and given and len(given) < _LONGEST:
        after = spec_pattern(_as_json(spec))
        if after[1:] == pattern[1:]:
            if len(_defaulted) >= _KEPT:
                _defaulted.clear()
            _defaulted[pattern.data] = after.data
    return spec


def _comes_again(pattern: bytes) -> bool:
    mark = hash(pattern)
    if mark in _once:
        return True
    if len(_once) >= _MOST_HASHES:
        _once.clear()
    _once.add(mark)
    return False


def _as_json(spec: Any) -> bytes:
    try:
        return _encode(spec)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return b""  # cannot be encoded as JSON


def _default_spec_of_pod(document: Document, spec: Document) -> None:
    default_pod_spec(spec)
    for name in ("containers", "initContainers"):
        if name in spec:
            for container in children(spec, name):
                _requests_from_limits(container)
    if "resources" in spec:
        _pod_level_resources(document, spec)
    fill(spec, enableServiceLinks=True)
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("hostNetwork") is True:
        for container in (*children(spec, "containers"), *children(spec, "initContainers")):
            for port in children(container, "ports"):
                if port.get("hostPort") in (None, 0) and "containerPort" in port:
                    port["hostPort"] = port["containerPort"]


def default_pod_status(document: Document) -> None:
    """Defaults of a write to status, which changes nothing else."""
    status = child(document, "status")
    drop_nulls(status)
    _container_statuses(status)


def _container_statuses(status: Document) -> None:
    if "containerStatuses" not in status and "initContainerStatuses" not in status:
        return
    for one in (*children(status, "containerStatuses"), *children(status, "initContainerStatuses")):
        canonical_quantities(one, "allocatedResources")
        canonical_quantities(child(one, "resources"), "requests", "limits")


def prepare_pod(document: Document) -> None:
    """Sets what the server decides for a new pod: its status, and the selectors that follow from matchLabelKeys."""
    spec = child(document, "spec")
    status: Document = {"phase": "Pending", "qosClass": _qos(document)}
    if spec.get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
        status["conditions"] = [gated]
    document["status"] = status
    _merge_all_label_keys(document)


def keep_pod_status(new: Document, old: Document) -> None:
    """Writes to the status of a pod change no owners, and cannot clear what the server computed."""
    restore(new, old, "metadata", "ownerReferences")
    status, before = new.get("status") or {}, old.get("status") or {}
    if not status.get("qosClass") and before.get("qosClass"):
        new["status"] = {**status, "qosClass": before["qosClass"]}
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        new["status"] = {**new["status"], "observedGeneration": before["observedGeneration"]}
    for name in ("resourceClaimStatuses", "extendedResourceClaimStatus"):  # of clients that do not know these fields
        if status.get(name) is None and before.get(name) is not None:
            new["status"] = {**(new.get("status") or {}), name: before[name]}


def pod_of_template(template: Document) -> Document:
    """The pod that a template describes, with the defaults that pods get and templates do not: requests from limits,
    host ports of the host network and others."""
    pod: Document = {name: template[name] for name in ("metadata", "spec") if name in template}
    try:
        pod = _decode(_encode(pod))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return pod  # cannot be encoded as JSON
    default_pod(pod)
    _merge_all_label_keys(pod)
    return pod


def _merge_all_label_keys(document: Document) -> None:
    spec = child(document, "spec")
    if "affinity" not in spec and "topologySpreadConstraints" not in spec:
        return
    labels = child(child(document, "metadata"), "labels")
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = child(child(spec, "affinity"), kind)
        for term in children(terms, "requiredDuringSchedulingIgnoredDuringExecution"):
            _merge_label_keys(term, labels)
        for weighted in children(terms, "preferredDuringSchedulingIgnoredDuringExecution"):
            _merge_label_keys(child(weighted, "podAffinityTerm"), labels)
    for constraint in children(spec, "topologySpreadConstraints"):
        _merge_label_keys(constraint, labels)


def _merge_label_keys(term: Document, labels: Document) -> None:
    """Adds matchLabelKeys and mismatchLabelKeys to the selector, with the values of this pod's labels."""
    selector = term.get("labelSelector")
    if not isinstance(selector, dict):
        return
    for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        keys = term.get(name)
        for key in keys if isinstance(keys, list) else ():
            value = labels.get(key) if isinstance(key, str) else None
            if value is not None:
                expressions = selector.get("matchExpressions")
                added = {"key": key, "operator": operator, "values": [value]}
                selector["matchExpressions"] = [*(expressions if isinstance(expressions, list) else ()), added]


def default_template(template: Document) -> None:
    """Defaults of the pod template of a workload; its pods are defaulted again."""
    made_child(template, "metadata")
    default_pod_spec(made_child(template, "spec"))


def default_pod_spec(spec: Document) -> None:
    fill_text(spec, dnsPolicy="ClusterFirst", restartPolicy="Always", schedulerName="default-scheduler")
    fill(spec, securityContext={}, terminationGracePeriodSeconds=30)
    if "overhead" in spec:
        canonical_quantities(spec, "overhead")
    if "resources" in spec:
        canonical_quantities(child(spec, "resources"), "requests", "limits")
    for name in ("containers", "initContainers", "ephemeralContainers"):
        if name in spec:
            for container in children(spec, name):
                _container(container)
    if "volumes" in spec:
        for volume in children(spec, "volumes"):
            if not is_token_volume(volume):  # which has all defaults
                _volume(volume)
    # serviceAccount is the deprecated name; both are set.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _container(container: Document) -> None:
    image = container.get("image")
    fill_text(
        container,
        imagePullPolicy="Always" if _is_latest(image if isinstance(image, str) else "") else "IfNotPresent",
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    fill(container, resources={})
    canonical_quantities(child(container, "resources"), "requests", "limits")
    if "ports" in container:
        for port in children(container, "ports"):
            fill_text(port, protocol="TCP")
    for name in _PROBES:
        probe = container.get(name)
        if isinstance(probe, dict):
            fill_number(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            _http_get(probe)
            if isinstance(probe.get("grpc"), dict):
                fill(probe["grpc"], service="")
    if "lifecycle" in container:
        for hook in ("postStart", "preStop"):
            _http_get(child(child(container, "lifecycle"), hook))
    for variable in children(container, "env") if "env" in container else ():
        if "valueFrom" not in variable:
            continue
        reference = child(child(variable, "valueFrom"), "fieldRef")
        if reference:
            fill_text(reference, apiVersion="v1")
        divided = child(child(variable, "valueFrom"), "resourceFieldRef")
        if divided:
            fill(divided, divisor="0")


def _http_get(handler: Document) -> None:
    action = handler.get("httpGet")
    if isinstance(action, dict):
        fill_text(action, path="/", scheme="HTTP")


def _is_latest(image: str) -> bool:
    """Whether the image has the tag `latest`, or neither a tag nor a digest."""
    if "@" in image:
        return False
    last = image.rpartition("/")[2]
    _, colon, tag = last.partition(":")
    return not colon or tag == "latest"


_MODES = {"secret": 0o644, "configMap": 0o644, "downwardAPI": 0o644, "projected": 0o644}


def _volume(volume: Document) -> None:
    if not any(name != "name" and source is not None for name, source in volume.items()):
        volume["emptyDir"] = {}
    for name, mode in _MODES.items():
        source = volume.get(name)
        if isinstance(source, dict):
            fill(source, defaultMode=mode)
    if isinstance(volume.get("hostPath"), dict):
        fill(volume["hostPath"], type="")
    for item in children(child(volume, "downwardAPI"), "items"):
        if isinstance(item.get("fieldRef"), dict):
            fill_text(item["fieldRef"], apiVersion="v1")
    for source in children(child(volume, "projected"), "sources"):
        token = source.get("serviceAccountToken")
        if isinstance(token, dict):
            fill(token, expirationSeconds=3600)
        for item in children(child(source, "downwardAPI"), "items"):
            if isinstance(item.get("fieldRef"), dict):
                fill_text(item["fieldRef"], apiVersion="v1")
    if isinstance(volume.get("image"), dict):
        reference = volume["image"].get("reference")
        latest = _is_latest(reference if isinstance(reference, str) else "")
        fill_text(volume["image"], pullPolicy="Always" if latest else "IfNotPresent")
    claim = child(child(child(volume, "ephemeral"), "volumeClaimTemplate"), "spec")
    if claim:
        fill(claim, volumeMode="Filesystem")
        canonical_quantities(child(claim, "resources"), "requests", "limits")


def _requests_from_limits(container: Document) -> None:
    resources = child(container, "resources")
    limits = child(resources, "limits")
    if limits:
        requests = made_child(resources, "requests")
        for name, quantity in limits.items():
            requests.setdefault(name, quantity)


def _as_view(document: Document) -> Pod | None:
    """The view of the pod; None if it is malformed, which validation reports."""
    try:
        return view({"spec": document.get("spec") or {}}, Pod)
    except (msgspec.ValidationError, TypeError):
        return None


def _pod_level_resources(document: Document, spec: Document) -> None:
    """Sets pod-level huge page requests and limits from those of the containers if the pod has only some of them."""
    resources = spec.get("resources")
    if not isinstance(resources, dict) or not (child(resources, "limits") or child(resources, "requests")):
        return
    pod = _as_view(document)
    if pod is None:
        return
    plain = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=None))
    try:
        asked, bounded = requests_nano(plain, overhead=False), limits_nano(plain, overhead=False)
    except (BadQuantity, ValueError, OverflowError):
        return
    requests, limits = dict(child(resources, "requests")), dict(child(resources, "limits"))
    for name, amount in bounded.items():
        if name.startswith("hugepages-") and name not in requests:
            limits.setdefault(name, format_nano(amount, "binary"))
    if limits:
        resources["limits"] = limits
        for name, amount in asked.items():
            if is_pod_level(name) and not name.startswith("hugepages-"):
                requests.setdefault(name, format_nano(amount, "binary" if name != "cpu" else "decimal"))
        for name, quantity in limits.items():
            if is_pod_level(name):
                requests.setdefault(name, quantity)
        if requests:
            resources["requests"] = requests


def _qos(document: Document) -> str:
    """The QoS class of a pod."""
    spec = child(document, "spec")
    parts = [spec.get("resources")]
    for name in ("containers", "initContainers"):
        if name in spec:
            parts += [each.get("resources") for each in children(spec, name)]
    data = _as_json(parts)
    found = _qos_known.get(data)
    if found is not None:
        return found
    pod = _as_view(document)
    if pod is None:
        return "BestEffort"
    try:
        found = qos_class(pod)
    except (BadQuantity, ValueError, OverflowError):
        return "BestEffort"
    if data and len(data) < _LONGEST:
        if len(_qos_known) >= _KEPT:
            _qos_known.clear()
        _qos_known[data] = found
    return found


def default_template_of(owner: Any) -> None:
    default_template(made_child(owner, "template"))
