"""What pods request on each node, kept current with every change of a pod."""

from __future__ import annotations

from wharfinger.api.keys import ObjectKey
from wharfinger.api.quantity import BadQuantity, milli_value, value
from wharfinger.api.registry import Document
from wharfinger.api.resources import CPU, Amounts, requests
from wharfinger.api.views import Pod, view


class NodeRequests:
    """Sums of requests by node, in scheduler units: thousandths of cpu, whole units of everything else."""

    def __init__(self) -> None:
        self.requested: dict[str, Amounts] = {}
        self.pods: dict[str, set[ObjectKey]] = {}
        self.amounts: dict[ObjectKey, Amounts] = {}  # of every pod, waiting ones too

    def pod_changed(self, old: Document | None, new: Document | None) -> None:
        if old is not None and (new is None or _place(old) != _place(new) or old.get("spec") != new.get("spec")):
            self._remove(old)
            old = None
        if new is not None and old is None:
            self._add(new)

    def _add(self, pod: Document) -> None:
        key, node = _key(pod), _place(pod)
        amounts = self.amounts[key] = pod_requests(pod)
        if node:
            self.pods.setdefault(node, set()).add(key)
            total = self.requested.setdefault(node, {})
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount

    def _remove(self, pod: Document) -> None:
        key, node = _key(pod), _place(pod)
        amounts = self.amounts.pop(key, {})
        if node:
            self.pods.get(node, set()).discard(key)
            total = self.requested.get(node, {})
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) - amount


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
