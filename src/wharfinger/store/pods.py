"""The binding and eviction subresources of pods.

After pkg/registry/core/pod/storage (storage.go, eviction.go) of Kubernetes. Nothing is awaited between the checks and the
write.
"""

from __future__ import annotations

import msgspec

from wharfinger.api.conditions import find_condition, is_true, set_condition
from wharfinger.api.errors import ApiError, BadRequest, TooManyRequests, conflict, forbidden, invalid_object
from wharfinger.api.fields import FieldError, not_supported, required
from wharfinger.api.kinds.builtin import POD_DISRUPTION_BUDGETS
from wharfinger.api.registry import Document, Kind
from wharfinger.api.requests import DeleteOptions
from wharfinger.api.selectors import BadSelector, LabelSelector, compile_label_selector, matches
from wharfinger.store.deletion import Deleter, check_preconditions
from wharfinger.store.objects import StoredObject, Written, encode
from wharfinger.store.pod_bytes import bound_fields, bound_middle, bound_status, set_bound, set_pod_condition, split_pod
from wharfinger.store.versions import copy
from wharfinger.store.writes import Call, Writer

_CANNOT_EVICT = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_DISRUPTED_LIMIT = 2000


_SUCCESS = encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})


def success(call: Call) -> Written:
    """The Status of a request that returns no object."""
    return Written(None, _SUCCESS, True, tuple(call.warnings))


class Pods:
    def __init__(self, writer: Writer, deleter: Deleter) -> None:
        self._writer = writer
        self._deleter = deleter

    async def bind(self, call: Call, document: Document) -> Written:
        """Binds a pod to a node, and adds the annotations and labels of the Binding in the same write."""
        bindings = self._writer.bindings
        if bindings is not None and bindings.bind(call, document):
            await self._writer.ledger.settled()
            return success(call)
        binding = document if call.owns_document else copy(document)
        metadata = binding.get("metadata") or {}
        call.name = call.name or metadata.get("name") or ""
        if metadata.get("name", call.name) != call.name:
            raise BadRequest("name in URL does not match name in Binding object")
        target = binding.get("target") or {}
        if faults := _target_faults(target):
            raise invalid_object("", "Binding", call.name, faults)
        binding = {"apiVersion": "v1", "kind": "Binding", **binding}
        request = call.request("CREATE", binding, None)
        chain = self._writer.chain
        await chain.mutate(request, call.warnings)
        await chain.validate(request, call.warnings)
        binding = request.object or binding
        metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
        stored = self._writer.existing(call)
        self._check_binding(call, metadata, stored)
        bound = self._bound(call.kind, metadata, stored, target["name"])
        pod = stored.document() if bound is None else {}
        if bound is None and (why := _unbindable(pod)):
            raise conflict("", "pods/binding", call.name, why)
        chain.finish(request, call.warnings)
        if not call.dry_run:
            if bound is None:
                self._complete(pod, metadata, target["name"])
                _, after = self._writer.ledger.put(call.kind, pod, stored)
            else:
                fields = bound_fields(call.kind, stored._fields, target["name"])
                after = self._writer.ledger.replace(call.kind, stored, bound, fields)
            if call.repeats is not None and bindings is not None:
                bindings.learn_binding(call, request, stored, after)
            await self._writer.ledger.settled()
        return success(call)

    def _bound(self, kind: Kind, metadata: Document, stored: StoredObject, node: str) -> bytes | None:
        """What follows the version of the pod once it is bound; None if that takes more than two changes, or is a conflict."""
        if metadata.get("annotations") or metadata.get("labels") or self._writer.chain.completes(stored.data):
            return None
        parts = split_pod(kind, stored)
        middle = None if parts is None else bound_middle(parts.middle, node)
        if parts is None or middle is None:
            return None
        return b"%b%b}" % (middle, bound_status(parts.status, self._writer.identities.time()))

    def _complete(self, pod: Document, metadata: Document, node: str) -> None:
        """Changes a pod that is bound, in place."""
        pod.setdefault("spec", {})["nodeName"] = node
        for part in ("annotations", "labels"):
            if metadata.get(part):
                pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), **metadata[part]}
        for completion in self._writer.chain.on_bind:
            completion.complete(pod)
        set_bound(pod.setdefault("status", {}), self._writer.identities.time())

    def _check_binding(self, call: Call, metadata: Document, stored: StoredObject) -> None:
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        if uid and uid != stored.uid:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.uid}"
            raise conflict("", "pods", call.name, why)
        if version and version != str(stored.version):
            why = (
                f"Precondition failed: ResourceVersion in precondition: {version}, "
                f"ResourceVersion in object meta: {stored.version}"
            )
            raise conflict("", "pods", call.name, why)

    async def evict(self, call: Call, document: Document) -> Written:
        """Deletes a pod if its disruption budget, if any, allows it."""
        eviction = copy(document)
        name = (eviction.get("metadata") or {}).get("name", call.name)
        call.name = call.name or name
        if name != call.name:
            raise BadRequest("name in URL does not match name in Eviction object")
        given = eviction.get("deleteOptions") or {}
        call.dry_run = call.dry_run or bool(given.get("dryRun"))
        preconditions = given.get("preconditions") or {}
        options = DeleteOptions(
            given.get("gracePeriodSeconds"),
            given.get("propagationPolicy") or "",
            preconditions.get("uid") or "",
            preconditions.get("resourceVersion") or "",
        )
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", **eviction}
        request = call.request("CREATE", eviction, None)
        chain = self._writer.chain
        await chain.mutate(request, call.warnings)
        await chain.validate(request, call.warnings)
        stored = self._writer.existing(call)
        check_preconditions(call, stored, options)
        chain.finish(request, call.warnings)
        pod = stored.document()
        if not _beyond_budgets(pod):
            budgets = self._budgets(stored)
            if len(budgets) > 1:
                raise ApiError(_SEVERAL_BUDGETS, code=500, reason="")
            for kind, budget in budgets:
                self._take_disruption(call, kind, budget, pod)
        if not call.dry_run:
            status = pod.setdefault("status", {})
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            }
            set_pod_condition(status, condition, self._writer.identities.time())
            pod, stored = self._writer.ledger.put(call.kind, pod, stored)
        await self._deleter.carry_out(call, pod, stored, options)
        return success(call)

    def _budgets(self, pod: StoredObject) -> list[tuple[Kind, StoredObject]]:
        kind = self._writer.registry.of_plural(POD_DISRUPTION_BUDGETS.group, POD_DISRUPTION_BUDGETS.plural)
        if kind is None:
            return []
        budgets = self._writer.ledger.collection(kind.group, kind.plural).latest.values(f"{pod.namespace}/")
        return [(kind, budget) for budget in budgets if _selects(budget, pod)]

    def _take_disruption(self, call: Call, kind: Kind, stored: StoredObject, pod: Document) -> None:
        budget = stored.document()
        status = budget.setdefault("status", {})
        healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        if not _ready(pod):
            policy = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy")
            # An unhealthy pod does not count towards the budget, so its eviction does not use it up.
            if policy == "AlwaysAllow" or healthy >= desired > 0:
                return
        _check_budget(budget, status, healthy, desired)
        status["disruptionsAllowed"] -= 1
        now = self._writer.identities.time()
        if status["disruptionsAllowed"] == 0:
            _set_disruption_allowed(budget, status, now)
        if call.dry_run:
            return
        status["disruptedPods"] = {**(status.get("disruptedPods") or {}), call.name: now}
        self._writer.ledger.put(kind, budget, stored)


def _target_faults(target: Document) -> list[FieldError]:
    faults = []
    if target.get("kind") not in (None, "", "Node"):
        faults.append(not_supported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        faults.append(required("target.name"))
    return faults


def _unbindable(pod: Document) -> str:
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if metadata.get("deletionTimestamp"):
        return f"pod {metadata['name']} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {metadata["name"]} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {metadata['name']} has non-empty .spec.schedulingGates"
    return ""


def _beyond_budgets(pod: Document) -> bool:
    """Whether budgets do not apply: the pod is not running yet, has finished, or is being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def _ready(pod: Document) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return is_true(conditions, "Ready")


def _selects(budget: StoredObject, pod: StoredObject) -> bool:
    selector = (budget.document().get("spec") or {}).get("selector")
    if selector is None:
        return False
    try:
        return matches(compile_label_selector(msgspec.convert(selector, LabelSelector)), pod.labels)
    except (BadSelector, msgspec.ValidationError):
        return False


def _refused(message: str, retry_after: float | None = None) -> TooManyRequests:
    details = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    return TooManyRequests(_CANNOT_EVICT, details=details, retry_after=retry_after)


def _check_budget(budget: Document, status: Document, healthy: int, desired: int) -> None:
    metadata = budget["metadata"]
    name = metadata["name"]
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        raise _refused(f"The disruption budget {name} is still being processed by the server.", 10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise forbidden("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > _DISRUPTED_LIMIT:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("policy", "poddisruptionbudget", name, why)
    if allowed:
        return
    conditions = status.get("conditions") or ()
    condition = find_condition(conditions, "DisruptionAllowed") or {}
    told = condition.get("status") == "False" and condition.get("message")
    if told and condition.get("reason") == "SyncFailed":
        why = f"does not allow evicting pods currently because it failed sync: {told}"
    elif healthy <= desired:
        why = f"needs {desired} healthy pods and has {healthy} currently"
    elif told:
        why = f"does not allow evicting pods currently ({condition.get('reason', '')}): {told}"
    else:
        why = "does not allow evicting pods currently"
    raise _refused(f"The disruption budget {name} {why}")


def _set_disruption_allowed(budget: Document, status: Document, now: str) -> None:
    condition = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "reason": "InsufficientPods",
        "message": "",
        "lastTransitionTime": now,
    }
    status["conditions"] = set_condition(status.get("conditions") or (), condition)
