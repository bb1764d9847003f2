"""Device taint eviction: deletes pods that use devices with NoExecute taints that their claims do not tolerate.

Taints come from ResourceSlices and from DeviceTaintRules, whose status says what they did. After
pkg/controller/devicetainteviction of Kubernetes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from wharfinger.api.conditions import new_condition
from wharfinger.api.defaults.devices import allocation_results
from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.api.views import Pod
from wharfinger.client.pods import delete_disrupted_pod
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.controllers.devices import taints
from wharfinger.controllers.devices.taints import DeviceEviction, PoolKey, RuleEffect
from wharfinger.devices.pod_claims import claim_keys, is_made_for, is_reserved_for, used_claims

_Key = tuple[str, str, str]
_POD, _RULE = "pod", "rule"
_STATUS_PERIOD = 10.0  # seconds between two updates of a rule's status


class DeviceTaintEvictionController(ContextController[_Key]):
    """Keys are pods and rules."""

    name = "devicetainteviction"
    workers = 4

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._pods = context.pods
        self._claims = context.documents(RESOURCE_CLAIMS)
        self._slices = context.documents(RESOURCE_SLICES)
        self._rules = context.documents(DEVICE_TAINT_RULES)
        self._pods_by_claim = self._pods.index("resourceclaims", claim_keys)
        self._claims_by_pool = self._claims.index("device-pools", _pools_of)
        self._slices_by_pool = self._slices.index("pool", lambda slice: (taints.pool_key(slice),))
        self._waiting: set[_Key] = set()  # pods with a pending eviction
        self._evicted: Counter[str] = Counter()  # pods by the UID of a rule
        self._pods.add_handler(self._pod_seen, lambda old, new: self._pod_seen(new), self._pod_gone)
        self._claims.add_handler(self._claim_seen, lambda old, new: self._claim_seen(new))
        self._slices.add_handler(self._slice_seen, self._slice_updated, self._slice_seen)
        self._rules.add_handler(self._rule_seen, self._rule_updated, self._rule_gone)

    async def reconcile(self, key: _Key) -> None:
        if key[0] == _POD:
            await self._reconcile_pod(key)
        else:
            await self._reconcile_rule(key)

    # -- pods

    async def _reconcile_pod(self, key: _Key) -> None:
        pod = self._pods.get(key[2], key[1])
        if pod is None or pod.terminating:
            self._waiting.discard(key)
            return
        now, found = self.context.now(), self._eviction(pod, self._evicting_rules())
        if found is None:
            if key in self._waiting:
                self._waiting.discard(key)
                self._record_event(pod, "Cancelling deletion")
            return
        for name in found.rules:
            self.queue.add_after((_RULE, "", name), _STATUS_PERIOD, background=True)
        if found.at > now:
            self._waiting.add(key)
            self.queue.add_after(key, found.at - now, background=True)
            return
        self._waiting.discard(key)
        await self._evict(pod, found, now)

    async def _evict(self, pod: Pod, found: DeviceEviction, now: float) -> None:
        self._record_event(pod, "Marking for deletion")
        message = "Device Taint manager: deleting due to NoExecute taint"
        condition = new_condition("DisruptionTarget", True, "DeletionByDeviceTaintManager", message, now)
        try:
            await delete_disrupted_pod(self.client, pod.metadata, condition)
        except NotFound:
            return
        for rule in self._evicting_rules():
            if rule["metadata"]["name"] in found.rules:
                self._evicted[rule["metadata"]["uid"]] += 1

    def _record_event(self, pod: Pod, what: str) -> None:
        self.context.recorder.event(PODS, pod, "Normal", "DeviceTaintManagerEviction", what)

    def _evicting_rules(self) -> list[Document]:
        return [rule for rule in self._rules if taints.evicts(taints.rule_taint(rule))]

    def _eviction(self, pod: Pod, rules: Iterable[Document]) -> DeviceEviction | None:
        """When the pod must leave; None for never."""
        if not pod.spec.node_name:
            return None
        found: DeviceEviction | None = None
        for entry, name in used_claims(pod):
            claim = self._claims.get(name, pod.metadata.namespace)
            if claim is None or not is_reserved_for(claim, pod):
                continue
            if entry.resource_claim_template_name is not None and not is_made_for(claim, pod):
                continue
            pools = {key: self._slices_by_pool.get(key) for key in _pools_of(claim)}
            one = taints.eviction(claim, pools, rules)
            if one is not None and found is not None:
                one = DeviceEviction(min(one.at, found.at), one.rules | found.rules)
            found = one or found
        return found

    # -- rules

    async def _reconcile_rule(self, key: _Key) -> None:
        rule = self._rules.get(key[2])
        if rule is None:
            return
        now, metadata = self.context.now(), rule["metadata"]
        conditions = (rule.get("status") or {}).get("conditions") or []
        old = next((each for each in conditions if each.get("type") == taints.EVICTION_IN_PROGRESS), None)
        if old is not None and old.get("observedGeneration") == metadata.get("generation"):
            since = now - parse_time(old["lastTransitionTime"])
            if since < _STATUS_PERIOD:
                self.queue.add_after(key, _STATUS_PERIOD - since, background=True)
                return
        effect = taints.rule_taint(rule).get("effect") or ""
        status, reason, message = taints.rule_condition(effect, self._effect(rule, effect))
        condition = new_condition(taints.EVICTION_IN_PROGRESS, status, reason, message, now)
        condition["observedGeneration"] = metadata.get("generation") or 0
        if old is not None and {**old, "lastTransitionTime": ""} == {**condition, "lastTransitionTime": ""}:
            return
        others = [each for each in conditions if each is not old]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [*others, condition]}}
        try:
            await self.client.patch(DEVICE_TAINT_RULES, metadata["name"], patch, subresource="status")
        except NotFound:
            return

    def _effect(self, rule: Document, effect: str) -> RuleEffect:
        evicted = self._evicted[rule["metadata"]["uid"]]
        if effect not in (taints.NO_EXECUTE, "None"):
            return RuleEffect(0, 0, 0, 0, evicted)
        # As upstream, a rule without effect is tried alone.
        rules = [rule] if effect == "None" else self._evicting_rules()
        name = rule["metadata"]["name"]
        pods = [
            pod
            for pod in self._pods
            if pod.spec.resource_claims
            and not pod.terminating
            and (found := self._eviction(pod, rules)) is not None
            and name in found.rules
        ]
        pools = self._slices_by_pool.keys()
        published = sum(
            taints.selects(rule, *_as_pool(key), device.get("name") or "")
            for key in pools
            for device in taints.devices_of(taints.current_slices(self._slices_by_pool.get(key)))
        )
        allocated = sum(
            taints.selects_result(rule, result) for claim in self._claims for result in allocation_results(claim)
        )
        return RuleEffect(published, allocated, len(pods), len({pod.metadata.namespace for pod in pods}), evicted)

    # -- events

    def _pod_seen(self, pod: Pod) -> None:
        if pod.spec.resource_claims and pod.spec.node_name:
            self.queue.add((_POD, *pod.metadata.key))

    def _pod_gone(self, pod: Pod) -> None:
        self._waiting.discard((_POD, *pod.metadata.key))

    def _claim_seen(self, claim: Document) -> None:
        for pod in self._pods_by_claim.get((claim["metadata"]["namespace"], claim["metadata"]["name"])):
            self._pod_seen(pod)

    def _slice_seen(self, slice: Document) -> None:
        for claim in self._claims_by_pool.get(taints.pool_key(slice)):
            self._claim_seen(claim)

    def _slice_updated(self, old: Document, new: Document) -> None:
        if old.get("spec") != new.get("spec"):
            self._slice_seen(new)

    def _rule_seen(self, rule: Document) -> None:
        self.queue.add((_RULE, "", rule["metadata"]["name"]))
        self._rule_changed(rule)

    def _rule_updated(self, old: Document, new: Document) -> None:
        if old.get("spec") != new.get("spec"):
            self._rule_changed(old)
            self._rule_seen(new)

    def _rule_gone(self, rule: Document) -> None:
        self._evicted.pop(rule["metadata"]["uid"], None)
        self._rule_changed(rule)

    def _rule_changed(self, rule: Document) -> None:
        if taints.evicts(taints.rule_taint(rule)):
            for claim in self._claims:
                if any(taints.selects_result(rule, result) for result in allocation_results(claim)):
                    self._claim_seen(claim)


def _pools_of(claim: Document) -> set[PoolKey]:
    return {(result.get("driver") or "", result.get("pool") or "") for result in allocation_results(claim)}


def _as_pool(key: object) -> PoolKey:
    assert isinstance(key, tuple)
    return key[0], key[1]
