"""Admission: no pod exists that the scheduling policies of its service account, at the time of its admission, refuse.

The tenants of a history use what the generator sets up: the service accounts of a namespace may use one policy of their
own and the shipped one that only names schedulers. A webhook judges by the policies that it has seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.fuzz.history import PlainChange, PlainHistory, title
from wharfinger.fuzz.invariants.base import Invariant

_ADDED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")  # tolerations that every pod gets


class PodsAdmitted(Invariant):
    name = "admission"
    kinds = ("pods", "schedulingpolicies")

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._policies_changed = 0  # the last version

    def changed(self, change: PlainChange) -> Iterator[str]:
        pod = change.after
        if change.plural == "schedulingpolicies":
            self._policies_changed = change.version
        if change.plural != "pods" or change.before is not None or pod is None or not self.history.enforced:
            return
        seen = self.history.reviewed.pop(change.key, {})
        if self._policies_changed > seen.get("schedulingpolicies", self._policies_changed):
            return
        owners = pod["metadata"].get("ownerReferences") or ()
        if any(each["kind"] == "DaemonSet" for each in owners):
            return  # what their controller adds is not judged
        namespace = pod["metadata"]["namespace"]
        policies = [
            (each.get("spec") or {}).get("allowed") or {}
            for (_, name), each in self.history.objects["schedulingpolicies"].items()
            if name == "restricted" or name == _OWN.get(namespace)
        ]
        yield from (f"pod {title(pod)} exists, but {why}" for why in _refusals(pod["spec"], policies))


_OWN = {"red": "policy0", "blue": "policy1"}


def _refusals(spec: Document, policies: list[Document]) -> Iterator[str]:
    name = spec.get("priorityClassName")
    if name and not any(_among(name, each.get("priorityClasseNames")) for each in policies):
        yield f"no policy allows the priority class {name}"
    for key, value in (spec.get("nodeSelector") or {}).items():
        if not any(_selects(key, value, each.get("nodeSelectors")) for each in policies):
            yield f"no policy allows the node selector {key}={value}"
    for toleration in spec.get("tolerations") or ():
        if toleration.get("key") in _ADDED and toleration.get("tolerationSeconds"):
            continue
        if not any(_tolerates(toleration, each.get("tolerations")) for each in policies):
            yield f"no policy allows the toleration {toleration}"
    if spec.get("affinity") and not any(each.get("affinities") == {} for each in policies):
        yield "no policy allows affinity"


def _among(name: str, allowed: list[str] | None) -> bool:
    """An empty list allows every name; none at all allows nothing."""
    return allowed is not None and (not allowed or name in allowed)


def _selects(key: str, value: str, allowed: dict[str, list[str]] | None) -> bool:
    if allowed is None:
        return False
    return not allowed or (key in allowed and (not allowed[key] or value in allowed[key]))


def _tolerates(toleration: Document, patterns: list[Document] | None) -> bool:
    if patterns is None:
        return False
    return not patterns or any(
        toleration.get("key") in each["keys"] and toleration.get("operator") in each["operators"] for each in patterns
    )
