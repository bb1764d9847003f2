"""Device class names on a real API server: rewriting names to aliases, and overlaying raw requests.

A real API server accepts only qualified resource names, so unqualified names in pods, pod templates and quotas can be
rewritten to the alias of their class. Re-applying such a manifest sends the unqualified name next to the stored alias;
the unqualified name wins.

A real kubelet allocates devices for raw resource names only, so overlay mode adds the raw request to the pod. An
annotation records how much was added, so that it is not counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.admission.scheduler_records import is_binding
from wharfinger.api.errors import forbidden
from wharfinger.api.kinds import pod_templates
from wharfinger.api.quantity import BadQuantity, value
from wharfinger.api.registry import Document
from wharfinger.api.validation.resources import is_device, is_unqualified
from wharfinger.systems.resource_class.kinds.views import ResourceClass, default_alias
from wharfinger.systems.resource_class.rules.compute_resources import (
    OVERLAID,
    RECORD,
    BadRecord,
    format_overlaid,
    format_record,
    parse_overlaid,
    parse_record,
)

Classes = Callable[[], Iterable[ResourceClass]]
_POD = ("", "pods")
_QUOTA = ("", "resourcequotas")


class NameRewriter:
    """Mutating: rewrites unqualified names to the aliases of their classes. An unknown class may be created later, so
    its name is rewritten to the default alias."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes

    def review(self, request: Request) -> Review:
        if request.object is None or request.subresource:
            return PASS
        kind = (request.resource.group, request.resource.plural)
        if kind == _QUOTA:
            _rewrite_quota(request.object, self._classes())
            return PASS
        names = {each.name: each.alias for each in self._classes()}
        before = {str(each.get("name")): each for each in containers(request.old or {}, kind)}
        for container in containers(request.object, kind):
            _rewrite_container(container, before.get(str(container.get("name")), {}), names)
        if kind == _POD:
            _rewrite_record(request.object, names)
        return PASS


class Overlay:
    """Mutating: adds the raw request for every class that a new pod requests."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes

    def review(self, request: Request) -> Review:
        if not _is_new_pod(request) or request.object is None:
            return PASS
        wanted = overlaid(request.object, self._classes())
        before = _overlaid_before(request.object)  # reinvocation: the overlay may be there already
        for container in containers(request.object, _POD):
            name = str(container.get("name"))
            for raw, amount in wanted.get(name, {}).items():
                more = amount - before.get(name, {}).get(raw, 0)
                for part in ("limits", "requests"):
                    amounts = _amounts(container["resources"], part)
                    container["resources"][part] = {
                        **amounts,
                        raw: str(max(more + _device_count(amounts.get(raw, 0)), amount)),
                    }
        annotations = request.object.setdefault("metadata", {}).setdefault("annotations", {})
        if wanted:
            annotations[OVERLAID] = format_overlaid(wanted)
        else:
            annotations.pop(OVERLAID, None)
        return PASS


class OverlaidReviewer:
    """Validating: the annotation that excludes raw requests from counting must match what the overlay added."""

    def __init__(self, classes: Classes, *, overlay: bool) -> None:
        self._classes = classes
        self._overlay = overlay

    def repeats(self, request: Request) -> bool:
        return True

    def review(self, request: Request) -> Review:
        binding = is_binding(request)
        if request.object is None or request.operation not in ("CREATE", "UPDATE"):
            return PASS
        if (request.resource.group, request.resource.plural) != _POD and not binding:
            return PASS
        said = _annotation(request.object)
        if request.operation == "UPDATE" and request.old is not None:
            right = said == _annotation(request.old)
        elif said is None:
            right = True
        else:
            wanted = overlaid(request.object, self._classes()) if self._overlay and not binding else {}
            right = bool(wanted) and said == format_overlaid(wanted)
        if right:
            return PASS
        why = f"annotation {OVERLAID} may only be set by the device class overlay"
        return Review(denied=forbidden("", "pods", request.name, why))


class QuotaNamesReviewer:
    """Validating, for real API servers: warns about quota keys that are accepted there but never enforced."""

    def review(self, request: Request) -> Review:
        if (request.resource.group, request.resource.plural) != _QUOTA or request.object is None:
            return PASS
        hard = (request.object.get("spec") or {}).get("hard") or {}
        return Review(
            warnings=[
                f'spec.hard[{name}]: is never enforced for this name; "requests.{name}" is'
                for name in sorted(hard)
                if "/" in name and not name.startswith(("requests.", "count/")) and is_device(name)
            ]
        )


def overlaid(pod: Document, classes: Iterable[ResourceClass]) -> dict[str, dict[str, int]]:
    """The raw amounts that the requested classes stand for, by container."""
    by_name: dict[str, ResourceClass] = {}
    for each in classes:
        if not each.per_cluster and not each.spec.driver:
            by_name[each.name] = by_name[each.alias] = each
    found: dict[str, dict[str, int]] = {}
    for container in containers(pod, _POD):
        resources = container.get("resources") or {}
        amounts = {**_amounts(resources, "limits"), **_amounts(resources, "requests")}
        for name, quantity in amounts.items():
            meant = by_name.get(name)
            if meant is not None and (amount := _device_count(quantity)):
                raws = found.setdefault(str(container.get("name")), {})
                raw = meant.spec.resource_name
                raws[raw] = raws.get(raw, 0) + amount * meant.group_size
    return found


def containers(document: Document, kind: tuple[str, str]) -> Iterator[Document]:
    """The containers of a pod or of a workload's pod template."""
    holder: Any = document
    template = pod_templates().get(kind)
    for step in template.pod_template.split(".") if template is not None else ():
        holder = holder.get(step) if isinstance(holder, dict) else None
    spec = holder.get("spec") if isinstance(holder, dict) else None
    if not isinstance(spec, dict) or (template is None and kind != _POD):
        return
    for part in ("initContainers", "containers"):
        for container in spec.get(part) or ():
            if isinstance(container, dict):
                yield container


def _alias(name: str, names: Mapping[str, str]) -> str:
    """The qualified name under which an API server accepts a request for `name`."""
    return names.get(name) or (default_alias(name) if is_unqualified(name) else name)


def _rewrite_container(container: Document, before: Document, names: Mapping[str, str]) -> None:
    """`before` is the stored container; empty for a new one."""
    resources = container.get("resources")
    for part in ("limits", "requests"):
        amounts, stored = _amounts(resources, part), _amounts(before.get("resources"), part)
        aliases = {name: _alias(name, names) for name in amounts}
        plain = {alias for name, alias in aliases.items() if alias != name}
        if not plain:
            continue
        made: dict[str, Any] = {}
        for name, quantity in amounts.items():
            own = aliases[name]
            if own == name and own in plain and quantity == stored.get(own):
                continue
            made[own] = str(_device_count(made[own]) + _device_count(quantity)) if own in made else quantity
        resources[part] = made  # type: ignore[index]  # not None: it has amounts


def _rewrite_record(pod: Document, names: Mapping[str, str]) -> None:
    """Rewrites the names in a pod's device record, as in its requests."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    try:
        record = parse_record(annotations[RECORD])
    except (KeyError, TypeError, BadRecord):
        return  # no record, or a malformed one, which the scheduler reports
    made = {
        container: {_alias(name, names): counts for name, counts in requests.items()}
        for container, requests in record.items()
    }
    if made != record:
        annotations[RECORD] = format_record(made)


def _rewrite_quota(quota: Document, classes: Iterable[ResourceClass]) -> None:
    """Rewrites limits on classes and raw resources to `requests.<name>`, the form that an API server enforces. Names of
    unknown classes are left alone: the API server rejects them, so a typo is not silently turned into a limit that
    matches nothing."""
    spec = quota.get("spec")
    hard = _amounts(spec, "hard")
    enforced: dict[str, str] = {}
    for each in classes:
        alias, raw = f"requests.{each.alias}", each.spec.resource_name
        enforced |= {each.name: alias, f"requests.{each.name}": alias, each.alias: alias, raw: f"requests.{raw}"}
    made = {name: quantity for name, quantity in hard.items() if name not in enforced}
    made |= {enforced[name]: quantity for name, quantity in hard.items() if name in enforced}
    if made != hard:
        spec["hard"] = made  # type: ignore[index]  # not None: it has amounts


def _amounts(holder: Any, part: str) -> dict[str, Any]:
    found = holder.get(part) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def _device_count(quantity: Any) -> int:
    """A device count; 0 for a malformed quantity, which validation rejects."""
    try:
        return value(quantity) if isinstance(quantity, str | int | float) else 0
    except BadQuantity:
        return 0


def _overlaid_before(document: Document) -> dict[str, dict[str, int]]:
    said = _annotation(document)
    return parse_overlaid(said) if isinstance(said, str) else {}


def _annotation(document: Document) -> object:
    return ((document.get("metadata") or {}).get("annotations") or {}).get(OVERLAID)


def _is_new_pod(request: Request) -> bool:
    resource = request.resource
    return request.operation == "CREATE" and not request.subresource and (resource.group, resource.plural) == _POD
