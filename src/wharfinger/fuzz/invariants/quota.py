"""Quota: no accepted write of a pod brings the use of a namespace above what a quota allows, by class names and aliases
alike."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.fuzz.history import PlainChange, is_deleting, is_terminal, title
from wharfinger.fuzz.invariants.base import Invariant
from wharfinger.fuzz.quantities import Milli, add, amounts, pod_requests

_ALIAS = "resourceclass.scheduling.sigs.x-k8s.io/"


class QuotaKept(Invariant):
    name = "quota"

    def changed(self, change: PlainChange) -> Iterator[str]:
        pod, before = change.after, change.before
        if change.plural != "pods" or pod is None or not _counts(pod):
            return
        if before is not None and before["metadata"]["uid"] == pod["metadata"]["uid"]:
            if before["spec"] == pod["spec"]:
                return
            earlier = _charge(before)
        else:
            earlier = {}
        namespace = pod["metadata"]["namespace"]
        quotas = [each for (where, _), each in self.history.objects["resourcequotas"].items() if where == namespace]
        if not quotas:
            return
        mine = _charge(pod)
        used: Milli = {}
        for (where, _), each in self.history.objects["pods"].items():
            if where == namespace and _counts(each):
                add(used, _charge(each))
        for quota in quotas:
            hard = amounts((quota.get("spec") or {}).get("hard"))
            for name, limit in hard.items():
                if mine.get(name, 0) > earlier.get(name, 0) and used.get(name, 0) > limit:
                    yield (
                        f"pod {title(pod)} was accepted, and namespace {namespace} then uses {used[name]} of {limit} "
                        f"milli-{name} of quota {quota['metadata']['name']}"
                    )


def _counts(pod: Document) -> bool:
    return not is_terminal(pod) and not is_deleting(pod)


def _charge(pod: Document) -> Milli:
    """What a pod is charged for, under every name that a quota may use."""
    charge: Milli = {"pods": 1000}
    for name, amount in pod_requests(pod["spec"]).items():
        plain = name.removeprefix(_ALIAS)
        for each in {name, plain, f"requests.{name}", f"requests.{plain}"}:
            charge[each] = charge.get(each, 0) + amount
    return charge
