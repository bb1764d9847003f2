"""Marks the Nodes that kubelets register, so that nobody simulates them, and keeps pods away until they are ready."""

from __future__ import annotations

from wharfinger.admission.node_authorizer import node_name
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.taints import NOT_READY
from wharfinger.node.annotations import SIMULATED, simulation_mark

_KUBELET = "kubelet"  # the field manager of kubelets, whatever user they are


class RealNodeReviewer:
    """Mutating: a Node that a kubelet creates gets the annotation `wharfinger.dev/simulated: "false"`, and the taint of a
    node that is not ready, as from upstream's plugin TaintNodesByCondition. The controller removes the taint.

    `wharf up` simulates all other nodes, such as those of a snapshot that was applied.
    """

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return plural == NODES.plural and not group and not subresource

    def review(self, request: Request) -> Review:
        if request.operation != "CREATE" or request.object is None or not request.targets(NODES):
            return PASS
        if node_name(request.user) is None and request.options.get("fieldManager") != _KUBELET:
            return PASS
        metadata = request.object["metadata"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        if simulation_mark(labels, annotations) is None:
            metadata["annotations"] = {**annotations, SIMULATED: "false"}
        spec = request.object.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(taint.get("key") == NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints):
            spec["taints"] = [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]
        return PASS
