"""The DaemonSet controller."""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import DAEMON_SETS
from wharfinger.api.object_meta import controller_reference
from wharfinger.api.pod_state import next_availability
from wharfinger.api.registry import Document
from wharfinger.api.selectors import Requirements
from wharfinger.api.views import ControllerRevision, DaemonSet, Node, Pod, view
from wharfinger.controllers.batches import BURST
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.controller_revisions import ControllerRevisions, RevisionHistory, revision_hash
from wharfinger.controllers.daemon_set import rules
from wharfinger.controllers.pod_owner import PodOwner
from wharfinger.controllers.pod_templates import pod_from_template
from wharfinger.controllers.status_patches import patch_status
from wharfinger.controllers.template_hashes import REVISION_HASH

GENERATION = "pod-template-generation"
BACKOFF_BASE, BACKOFF_LIMIT = 1.0, 900.0  # seconds between replacements of failed pods on one node


class DaemonSetController(PodOwner):
    name = "daemonset"
    resource = DAEMON_SETS

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.nodes = context.nodes
        self.revisions = ControllerRevisions(context, DAEMON_SETS)
        self._backoff: dict[tuple[str, str], tuple[float, float]] = {}  # by uid and node: since when, and how long
        self.nodes.add_handler(lambda node: self._all(), self._node_updated, lambda node: self._all())

    async def sync(self, key: ObjectKey, document: Document, selector: Requirements) -> None:
        spec = view(document, DaemonSet)
        metadata = spec.metadata
        pods = await self.claim_pods(metadata, selector)
        if metadata.deletion_timestamp:
            return
        history = await self.revisions.sync(metadata, spec.spec.template, selector, spec.status.collision_count or 0)
        now = self.context.now()
        failure = None
        if self.has_caught_up(key):
            failure = await self._act(key, document, spec, pods, history.update)
        await self._report(key, document, spec, pods, history, now)
        if failure is not None:
            raise failure

    async def _act(
        self, key: ObjectKey, document: Document, spec: DaemonSet, pods: Sequence[Pod], update: ControllerRevision
    ) -> Exception | None:
        now = self.context.now()
        nodes = sorted(self.nodes, key=lambda node: node.metadata.name)
        by_node = _by_node(pods)
        revision = revision_hash(update)
        plan = rules.manage(spec, nodes, by_node, revision, now)
        plan.delete = [pod for pod in plan.delete if not self._backs_off(key, spec, pod, plan, now)]
        if not plan.create and not plan.delete and spec.spec.update_strategy.type == "RollingUpdate":
            plan = rules.rolling_update(spec, nodes, by_node, revision, now)
        if not plan.create and not plan.delete:
            return None
        for pod in plan.failed:
            if pod in plan.delete:
                self._report_finished(document, pod)
        return await self._carry_out(key, document, spec, plan, update)

    async def _carry_out(
        self, key: ObjectKey, document: Document, spec: DaemonSet, plan: rules.DaemonPlan, revision: ControllerRevision
    ) -> Exception | None:
        create, delete = plan.create[:BURST], plan.delete[:BURST]
        names = [pod.metadata.name for pod in delete]
        self.expectations.expect(key, len(create), names, self.context.now())
        owner = controller_reference(DAEMON_SETS, spec.metadata)

        def make(index: int) -> Document:
            pod = pod_from_template(spec.spec.template, owner)
            pod["metadata"]["labels"] = {
                **pod["metadata"].get("labels", {}),
                REVISION_HASH: revision_hash(revision),
                GENERATION: str(revision.revision),  # both number the templates
            }
            pod["spec"] = rules.for_node(rules.with_tolerations(pod["spec"]), create[index])
            return pod

        _, creation_failure = await self.create_pods(key, document, len(create), make)
        deletion_failure = await self.delete_pods(key, document, delete)
        return creation_failure or deletion_failure

    def _backs_off(self, key: ObjectKey, spec: DaemonSet, pod: Pod, plan: rules.DaemonPlan, now: float) -> bool:
        """Whether the deletion of a failed pod is delayed by back-off: its node may reject all its successors too."""
        if pod not in plan.failed or pod.status.phase != "Failed":
            return False
        slot = (spec.metadata.uid, rules.node_of(pod))
        since, wait = self._backoff.get(slot, (0.0, 0.0))
        if now < since + wait:
            self.queue.add_after(key, since + wait - now, background=wait >= BACKOFF_LIMIT / 4)
            return True
        grown = BACKOFF_BASE if not wait or now > since + 2 * BACKOFF_LIMIT else min(BACKOFF_LIMIT, wait * 2)
        self._backoff[slot] = (now, grown)
        return False

    def _report_finished(self, document: Document, pod: Pod) -> None:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if pod.status.phase == "Failed":
            message = f"Found failed daemon pod {name} on node {pod.spec.node_name}, will try to kill it"
            self.event(document, "Warning", "FailedDaemonPod", message)
        else:
            message = f"Found succeeded daemon pod {name} on node {pod.spec.node_name}, will try to delete it"
            self.event(document, "Normal", "SucceededDaemonPod", message)

    async def _report(
        self,
        key: ObjectKey,
        document: Document,
        spec: DaemonSet,
        pods: Sequence[Pod],
        history: RevisionHistory,
        now: float,
    ) -> None:
        status = rules.status(spec, list(self.nodes), _by_node(pods), revision_hash(history.update), now)
        if history.collisions:
            status["collisionCount"] = history.collisions
        await patch_status(self.client, DAEMON_SETS, document, status)
        seconds = spec.spec.min_ready_seconds
        if seconds and status["numberReady"] != status["numberAvailable"]:
            self.queue.add_after(key, next_availability(pods, seconds, now) or seconds)
        live = [pod.metadata.labels.get(REVISION_HASH, "") for pod in pods]
        await self.revisions.truncate(history, live, spec.spec.revision_history_limit)

    def _all(self) -> None:
        for document in self.owners:
            self.enqueue(document)

    def _node_updated(self, old: Node, new: Node) -> None:
        if (
            old.metadata.labels != new.metadata.labels
            or old.spec.taints != new.spec.taints
            or old.spec.unschedulable != new.spec.unschedulable
        ):
            self._all()


def _by_node(pods: Sequence[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        found.setdefault(rules.node_of(pod), []).append(pod)
    return found
