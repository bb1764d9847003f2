"""Quota: no accepted write of a pod brings the use of a namespace above what a quota allows, by class names and aliases
alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.fuzz.history import PlainChange, PlainHistory, condition, is_deleting, is_terminal, title
from wharfinger.fuzz.invariants.base import Invariant
from wharfinger.fuzz.quantities import Milli, add, amounts, pod_requests

_ALIAS = "resourceclass.scheduling.sigs.x-k8s.io/"
_INFEASIBLE = "Infeasible"  # of a resize; what its pod is charged for follows what the containers have


class QuotaKept(Invariant):
    name = "quota"
    kinds = ("pods",)

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._charges: dict[tuple[str, str], Milli] = {}  # of the pods that count
        self._used: dict[str, Milli] = defaultdict(dict)  # by namespace

    def changed(self, change: PlainChange) -> Iterator[str]:
        pod, before = change.after, change.before
        mine = self._count(change)
        if pod is None or not mine:
            return
        if before is not None and before["metadata"]["uid"] == pod["metadata"]["uid"]:
            if not change.respecified:
                return
            earlier = _charge(before)
        else:
            earlier = {}
        namespace = pod["metadata"]["namespace"]
        quotas = [each for (where, _), each in self.history.objects["resourcequotas"].items() if where == namespace]
        used = self._used[namespace]
        for quota in quotas:
            hard = amounts((quota.get("spec") or {}).get("hard"))
            for name, limit in hard.items():
                if mine.get(name, 0) > earlier.get(name, 0) and used.get(name, 0) > limit:
                    yield (
                        f"pod {title(pod)} was accepted, and namespace {namespace} then uses {used[name]} of {limit} "
                        f"milli-{name} of quota {quota['metadata']['name']}"
                    )

    def _count(self, change: PlainChange) -> Milli:
        """Counts what a pod is charged for now, which is nothing for one that does not count, and returns it."""
        key, pod = change.key, change.after
        known = self._charges.pop(key, None)
        if pod is None or not _counts(pod):
            charge: Milli = {}
        else:
            resizes = {_resize(change.before), _resize(pod)}
            same = not change.respecified and _INFEASIBLE not in resizes
            charge = self._charges[key] = known if known is not None and same else _charge(pod)
        if charge is not known:
            add(self._used[key[0]], {name: -amount for name, amount in (known or {}).items()})
            add(self._used[key[0]], charge)
        return charge

    def recount(self) -> Iterator[str]:
        plain: dict[str, Milli] = defaultdict(dict)
        for pod in self.history.of("pods"):
            if _counts(pod):
                add(plain[pod["metadata"]["namespace"]], _charge(pod))
        for namespace in {*plain, *self._used}:
            kept = {name: amount for name, amount in self._used[namespace].items() if amount}
            counted = {name: amount for name, amount in plain[namespace].items() if amount}
            if kept != counted:
                yield f"the check counts {kept} in namespace {namespace}, but its pods are charged for {counted}"


def _counts(pod: Document) -> bool:
    return not is_terminal(pod) and not is_deleting(pod)


def _charge(pod: Document) -> Milli:
    """What a pod is charged for, under every name that a quota may use."""
    charge: Milli = {"pods": 1000}
    for name, amount in pod_requests(_charged_spec(pod)).items():
        plain = name.removeprefix(_ALIAS)
        for each in {name, plain, f"requests.{name}", f"requests.{plain}"}:
            charge[each] = charge.get(each, 0) + amount
    return charge


def _resize(pod: Document | None) -> str:
    """Why a resize of the pod waits."""
    return "" if pod is None else str(condition(pod, "PodResizePending").get("reason") or "")


def _charged_spec(pod: Document) -> Document:
    """The spec; after a resize that its node can never carry out, with what the containers have."""
    spec: Document = pod["spec"]
    if _resize(pod) != _INFEASIBLE:
        return spec
    statuses = {each["name"]: each for each in pod["status"].get("containerStatuses") or ()}
    containers = [
        {**each, "resources": statuses.get(each["name"], each).get("resources")} for each in spec["containers"]
    ]
    return {**spec, "containers": containers}
