"""What pods request on each node, and which wait, kept current with every change of a pod."""

from __future__ import annotations

from wharfinger.api.keys import ObjectKey
from wharfinger.api.quantity import BadQuantity, milli_value, value
from wharfinger.api.registry import Document
from wharfinger.api.resources import CPU, Amounts, requests
from wharfinger.api.views import Pod, view

_EQUAL = 4096  # amounts that are remembered so that equal ones are one object


class NodeRequests:
    """Sums of requests by node, in scheduler units: thousandths of cpu, whole units of everything else; and the numbers
    of pods that screens show."""

    def __init__(self) -> None:
        self.requested: dict[str, Amounts] = {}
        self.pods: dict[str, set[ObjectKey]] = {}
        self.amounts: dict[ObjectKey, Amounts] = {}  # of every pod, waiting ones too
        self.waiting: dict[ObjectKey, Document] = {}
        self.by_uid: dict[str, ObjectKey] = {}
        self.present = 0  # pods that are not over
        self.running = 0
        self._equal: dict[frozenset[tuple[str, int]], Amounts] = {}

    def pod_changed(self, old: Document | None, new: Document | None) -> None:
        if old is not None:
            self._count(old, -1)
        if new is not None:
            self._count(new, 1)
        if old is not None and (new is None or _place(old) != _place(new) or old.get("spec") != new.get("spec")):
            self._remove(old)
            old = None
        if new is not None and old is None:
            self._add(new)

    def _count(self, pod: Document, step: int) -> None:
        key, uid = _key(pod), pod["metadata"].get("uid", "")
        self.present += 0 if is_over(pod) else step
        self.running += step if (pod.get("status") or {}).get("phase") == "Running" else 0
        if step > 0:
            self.by_uid[uid] = key
            if is_waiting(pod):
                self.waiting[key] = pod
        else:
            self.by_uid.pop(uid, None)
            self.waiting.pop(key, None)

    def _add(self, pod: Document) -> None:
        key, node = _key(pod), _place(pod)
        amounts = self.amounts[key] = self._shared(pod_requests(pod))
        if node:
            self.pods.setdefault(node, set()).add(key)
            total = self.requested.setdefault(node, {})
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount

    def _remove(self, pod: Document) -> None:
        key, node = _key(pod), _place(pod)
        amounts = self.amounts.pop(key, {})
        if not node:
            return
        pods, total = self.pods.get(node, set()), self.requested.get(node, {})
        pods.discard(key)
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) - amount
        if not pods:  # the node may be gone as well
            self.pods.pop(node, None)
            self.requested.pop(node, None)

    def _shared(self, amounts: Amounts) -> Amounts:
        if len(self._equal) >= _EQUAL:
            self._equal.clear()
        return self._equal.setdefault(frozenset(amounts.items()), amounts)


def pod_requests(pod: Document) -> Amounts:
    try:
        return requests(view(pod, Pod))
    except (ValueError, TypeError):  # a pod that another version of Kubernetes accepted
        return {}


def allocatable(node: Document) -> Amounts:
    found: Amounts = {}
    for name, quantity in ((node.get("status") or {}).get("allocatable") or {}).items():
        try:
            found[name] = milli_value(quantity) if name == CPU else value(quantity)
        except BadQuantity:
            continue
    return found


def is_over(pod: Document) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_waiting(pod: Document) -> bool:
    """Whether the pod has no node and still wants one."""
    return (
        not (pod.get("spec") or {}).get("nodeName") and not is_over(pod) and "deletionTimestamp" not in pod["metadata"]
    )


def _place(pod: Document) -> str:
    """The node on which the pod takes room; empty for none."""
    return "" if is_over(pod) else str((pod.get("spec") or {}).get("nodeName") or "")


def _key(pod: Document) -> ObjectKey:
    metadata = pod["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
