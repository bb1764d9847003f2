"""Priorities: a pod's class becomes its number and its preemption policy; only one class may be the default."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import forbidden
from wharfinger.api.kinds.builtin import PODS, PRIORITY_CLASSES
from wharfinger.api.registry import Document
from wharfinger.api.views.workloads import PriorityClass

SYSTEM_CLASSES = (
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
)
"""Classes that exist in every cluster: name, value, description."""

PREEMPT_LOWER = "PreemptLowerPriority"


def system_classes() -> list[Document]:
    return [
        {
            "apiVersion": PRIORITY_CLASSES.api_version,
            "kind": PRIORITY_CLASSES.kind,
            "metadata": {"name": name},
            "value": value,
            "description": description,
            "preemptionPolicy": PREEMPT_LOWER,
        }
        for name, value, description in SYSTEM_CLASSES
    ]


class PriorityReviewer:
    """Mutates pods; `PriorityClassReviewer` guards the classes."""

    def __init__(self, find: Callable[[str], PriorityClass | None], all: Callable[[], Iterable[PriorityClass]]) -> None:
        self._find = find
        self._all = all
        self._seen: Iterable[PriorityClass] | None = None
        self._found: PriorityClass | None = None  # the default among those seen

    def _default(self) -> PriorityClass | None:
        """Looked for again only when the classes are others."""
        classes = self._all()
        if classes is not self._seen:
            self._found = default_class(classes)
            self._seen = classes if isinstance(classes, tuple) else None
        return self._found

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return plural == PODS.plural and not group and not subresource

    def review(self, request: Request) -> Review:
        if request.resource.plural != PODS.plural or request.resource.group or request.subresource:
            return PASS
        spec = (request.object or {}).get("spec")
        if not isinstance(spec, dict):
            return PASS
        if request.operation == "UPDATE":
            before = (request.old or {}).get("spec") or {}
            for field in ("priority", "preemptionPolicy"):
                if field not in spec and field in before:
                    spec[field] = before[field]
            return PASS
        return self._resolve(request, spec) if request.operation == "CREATE" else PASS

    def _resolve(self, request: Request, spec: Document) -> Review:
        name = spec.get("priorityClassName") or ""
        found = self._find(name) if name else self._default()
        if name and found is None:
            return _refused(request, f"no PriorityClass with name {name} was found")
        value, policy = (found.value, found.preemption_policy) if found is not None else (0, PREEMPT_LOWER)
        given = spec.get("priority")
        if given is not None and given != value:
            return _refused(
                request,
                f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {value} from the given PriorityClass name",
            )
        given = spec.get("preemptionPolicy")
        if given is not None and given != policy:
            return _refused(
                request,
                f"the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {policy} from the given PriorityClass name",
            )
        if found is not None:
            spec["priorityClassName"] = found.metadata.name
        spec["priority"] = value
        spec["preemptionPolicy"] = policy
        return PASS


class PriorityClassReviewer:
    """Validates priority classes: one default at most."""

    def __init__(self, all: Callable[[], Iterable[PriorityClass]]) -> None:
        self._all = all

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return plural == PRIORITY_CLASSES.plural and group == PRIORITY_CLASSES.group

    def review(self, request: Request) -> Review:
        if request.resource.plural != PRIORITY_CLASSES.plural or request.resource.group != PRIORITY_CLASSES.group:
            return PASS
        if request.object is None or request.object.get("globalDefault") is not True:
            return PASS
        default = default_class(self._all())
        if default is None or (request.operation == "UPDATE" and default.metadata.name == request.name):
            return PASS
        return _refused(
            request, f"PriorityClass {default.metadata.name} is already marked as default. Only one default can exist"
        )


def default_class(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """The class of pods that name none; the lowest where a race let in several."""
    return min((one for one in classes if one.global_default), key=lambda one: one.value, default=None)


def _refused(request: Request, why: str) -> Review:
    return Review(forbidden(request.resource.group, request.resource.plural, request.name, why))
