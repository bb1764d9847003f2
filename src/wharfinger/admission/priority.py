"""Pod priority, as in upstream's Priority plugin: resolves the class of a pod, and allows one default class only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wharfinger.admission.request import PASS, RepeatingPodReviewer, Request, Review
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
"""Classes that every cluster has: name, value, description."""

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


class PriorityReviewer(RepeatingPodReviewer):
    """Mutating: sets priority and preemption policy of pods."""

    def __init__(self, find: Callable[[str], PriorityClass | None], all: Callable[[], Iterable[PriorityClass]]) -> None:
        self._find = find
        self._all = all
        self._seen: Iterable[PriorityClass] | None = None
        self._found: PriorityClass | None = None  # the default class among them

    def _default(self) -> PriorityClass | None:
        """Searched again only if the classes changed."""
        classes = self._all()
        if classes is not self._seen:
            self._found = default_class(classes)
            self._seen = classes if isinstance(classes, tuple) else None
        return self._found

    def review(self, request: Request) -> Review:
        if not request.targets(PODS):
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
            return request.refused(f"no PriorityClass with name {name} was found")
        value, policy = (found.value, found.preemption_policy) if found is not None else (0, PREEMPT_LOWER)
        given = spec.get("priority")
        if given is not None and given != value:
            return request.refused(
                f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {value} from the given PriorityClass name",
            )
        given = spec.get("preemptionPolicy")
        if given is not None and given != policy:
            return request.refused(
                f"the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {policy} from the given PriorityClass name",
            )
        if found is not None:
            spec["priorityClassName"] = found.metadata.name
        spec["priority"] = value
        spec["preemptionPolicy"] = policy
        return PASS


class PriorityClassReviewer:
    """Validating: at most one default class."""

    def __init__(self, all: Callable[[], Iterable[PriorityClass]]) -> None:
        self._all = all

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return plural == PRIORITY_CLASSES.plural and group == PRIORITY_CLASSES.group

    def review(self, request: Request) -> Review:
        if (
            not request.targets(PRIORITY_CLASSES)
            or request.object is None
            or request.object.get("globalDefault") is not True
        ):
            return PASS
        default = default_class(self._all())
        if default is None or (request.operation == "UPDATE" and default.metadata.name == request.name):
            return PASS
        return request.refused(
            f"PriorityClass {default.metadata.name} is already marked as default. Only one default can exist"
        )


def default_class(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """The class of pods that name none; the lowest if a race created several."""
    return min((one for one in classes if one.global_default), key=lambda one: one.value, default=None)
