"""Makes the ResourceClaims of pods from templates, and releases claims that pods no longer use.

After pkg/controller/resourceclaim of Kubernetes.
"""

from __future__ import annotations

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.api.views.pods import PodResourceClaim
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.devices.claims import FINALIZER
from wharfinger.devices.pod_claims import (
    NOT_NEEDED,
    POD_CLAIM,
    claim_from_template,
    claim_keys,
    claim_name,
    consumer,
    consumers,
    has_claims,
    is_done,
    is_made_for,
    needs_reservation,
    owner_pod,
    used_claims,
)

_Key = tuple[str, str, str]
_POD, _CLAIM = "pod", "claim"


class ResourceClaimController(ContextController[_Key]):
    """Keys are pods and claims."""

    name = "resourceclaim"
    workers = 4

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._pods = context.pods
        self._claims = context.documents(RESOURCE_CLAIMS)
        self._templates = context.documents(RESOURCE_CLAIM_TEMPLATES)
        self._pods_by_claim = self._pods.index("resourceclaims", claim_keys)
        self._pods_by_template = self._pods.index("resourceclaimtemplates", _template_keys)
        self._claims_by_owner = self._claims.index("pod-owner", _owner_keys)
        self._made: dict[tuple[str, str], str] = {}  # by pod UID and entry: claims that the informer may lack
        self._pods.add_handler(self._pod_seen, lambda old, new: self._pod_seen(new), self._pod_gone)
        self._claims.add_handler(self._claim_seen, lambda old, new: self._claim_seen(new), self._claim_gone)
        self._templates.add_handler(self._template_seen)

    async def reconcile(self, key: _Key) -> None:
        kind, namespace, name = key
        if kind == _POD:
            pod = self._pods.get(name, namespace)
            if pod is not None and not pod.terminating:
                await self._reconcile_pod(pod)
        else:
            claim = self._claims.get(name, namespace)
            if claim is not None:
                await self._reconcile_claim(claim)

    # -- pods

    async def _reconcile_pod(self, pod: Pod) -> None:
        made: dict[str, str] = {}
        for entry in pod.spec.resource_claims:
            try:
                name = await self._ensure(pod, entry)
            except ApiError as error:
                self._report(pod, entry, error.message)
                raise
            if name:
                made[entry.name] = name
        if made:
            await self._record(pod, made)
        elif pod.spec.node_name:  # else the scheduler reserves
            await self._reserve(pod)

    async def _ensure(self, pod: Pod, entry: PodResourceClaim) -> str:
        """Makes the claim of an entry if it is missing. Returns its name if the pod's status has to record it."""
        known, namespace = claim_name(pod, entry), pod.metadata.namespace
        if known == NOT_NEEDED or entry.resource_claim_template_name is None:
            return ""
        if known is not None:
            claim = self._claims.get(known, namespace) or await self._read_claim(known, namespace)
            if claim is not None and is_made_for(claim, pod):
                return ""
        for claim in self._claims_by_owner.get((namespace, pod.metadata.uid)):
            if (claim["metadata"].get("annotations") or {}).get(POD_CLAIM) == entry.name:
                return str(claim["metadata"]["name"])
        earlier = self._made.get((pod.metadata.uid, entry.name))
        if earlier and earlier != known:
            return earlier
        return await self._create(pod, entry)

    async def _read_claim(self, name: str, namespace: str) -> Document | None:
        try:
            return await self.client.get(RESOURCE_CLAIMS, name, namespace)
        except NotFound:
            return None

    async def _create(self, pod: Pod, entry: PodResourceClaim) -> str:
        wanted = entry.resource_claim_template_name or ""
        template = self._templates.get(wanted, pod.metadata.namespace)
        if template is None:  # its creation brings the pod back
            missing = f'resourceclaimtemplate.resource.k8s.io "{wanted}" not found'
            self._report(pod, entry, f'resource claim template "{wanted}": {missing}')
            return ""
        try:
            created = await self.client.create(
                RESOURCE_CLAIMS, claim_from_template(pod, entry, template), pod.metadata.namespace
            )
        except ApiError as error:
            error.message = f"create ResourceClaim : {error.message}"
            raise
        name: str = created["metadata"]["name"]
        self._made[pod.metadata.uid, entry.name] = name
        return name

    def _report(self, pod: Pod, entry: PodResourceClaim, why: str) -> None:
        text = f"PodResourceClaim {entry.name}: {why}"
        self.context.recorder.event(PODS, pod, "Warning", "FailedResourceClaimCreation", text)

    async def _record(self, pod: Pod, made: dict[str, str]) -> None:
        known = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
        merged = {**{name: claim for name, claim in known.items() if claim is not None}, **made}
        statuses = [{"name": name, "resourceClaimName": merged[name]} for name in sorted(merged)]
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"resourceClaimStatuses": statuses}}
        try:
            await self.client.patch(PODS, pod.metadata.name, patch, pod.metadata.namespace, subresource="status")
        except NotFound:
            return

    async def _reserve(self, pod: Pod) -> None:
        for entry, name in used_claims(pod):
            claim = self._claims.get(name, pod.metadata.namespace)
            if claim is None:
                return
            if entry.resource_claim_template_name is not None and not is_made_for(claim, pod):
                return
            if needs_reservation(claim, pod):
                reserved = [*consumers(claim), consumer(pod)]
                await self._update_status(claim, {**claim["status"], "reservedFor": reserved})

    async def _update_status(self, claim: Document, status: Document) -> Document:
        """Fails if the claim has changed meanwhile."""
        changed = {**claim, "status": status}
        namespace = claim["metadata"]["namespace"]
        return await self.client.update(RESOURCE_CLAIMS, changed, namespace, subresource="status")

    # -- claims

    async def _reconcile_claim(self, claim: Document) -> None:
        status: Document = claim.get("status") or {}
        reserved = consumers(claim)
        remaining = [each for each in reserved if not await self._is_gone(claim, each)]
        finalizers = claim["metadata"].get("finalizers") or []
        ours = FINALIZER in finalizers
        if len(remaining) < len(reserved):
            changed = {**status, "reservedFor": remaining}
            if not remaining and ours:
                changed.pop("allocation", None)
            if not remaining:
                del changed["reservedFor"]
            claim = await self._update_status(claim, changed)
            if (claim.get("status") or {}).get("allocation") is None:
                claim = await self._remove_finalizer(claim)
        elif ours and claim["metadata"].get("deletionTimestamp") and not remaining:
            if status.get("allocation") is not None:
                rest = {name: value for name, value in status.items() if name != "allocation"}
                claim = await self._update_status(claim, rest)
            await self._remove_finalizer(claim)
        if not remaining:
            await self._delete_unused(claim)

    async def _is_gone(self, claim: Document, reference: Document) -> bool:
        """Whether a consumer is a pod that no longer uses the claim. Other consumers are kept."""
        if reference.get("apiGroup") or reference.get("resource") != "pods":
            return False
        name, namespace = reference.get("name") or "", claim["metadata"]["namespace"]
        pod = self._pods.get(name, namespace)
        if pod is None:  # the informer may not have seen it yet
            try:
                found = await self.client.get(PODS, name, namespace)
            except NotFound:
                return True
            return bool(found["metadata"].get("uid") != reference.get("uid"))
        return pod.metadata.uid != reference.get("uid") or is_done(pod)

    async def _remove_finalizer(self, claim: Document) -> Document:
        finalizers = claim["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            return claim
        metadata = {**claim["metadata"], "finalizers": [each for each in finalizers if each != FINALIZER]}
        return await self.client.update(RESOURCE_CLAIMS, {**claim, "metadata": metadata}, metadata["namespace"])

    async def _delete_unused(self, claim: Document) -> None:
        """Deletes a claim that was made for a pod that is not going to run, without waiting for the pod's deletion."""
        owner = owner_pod(claim)
        pod = None if owner is None else self._pods.get(owner[0], claim["metadata"]["namespace"])
        if owner is None or pod is None or claim["metadata"].get("deletionTimestamp"):
            return
        if pod.metadata.uid != owner[1] or is_done(pod):
            metadata = claim["metadata"]
            try:
                await self.client.delete(RESOURCE_CLAIMS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
            except NotFound:
                return

    # -- events

    def _pod_seen(self, pod: Pod) -> None:
        if has_claims(pod):
            if is_done(pod):
                self._enqueue_claims(pod)
            if not pod.terminating and not pod.terminal:
                self.queue.add((_POD, *pod.metadata.key))

    def _pod_gone(self, pod: Pod) -> None:
        if has_claims(pod):
            for entry in pod.spec.resource_claims:
                self._made.pop((pod.metadata.uid, entry.name), None)
            self._enqueue_claims(pod)

    def _enqueue_claims(self, pod: Pod) -> None:
        for namespace, name in claim_keys(pod):
            self.queue.add((_CLAIM, namespace, name))

    def _claim_seen(self, claim: Document) -> None:
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        self.queue.add((_CLAIM, namespace, name))
        for pod in self._pods_by_claim.get((namespace, name)):
            self._pod_seen(pod)

    def _claim_gone(self, claim: Document) -> None:
        owner = owner_pod(claim)
        if owner is not None:
            self._made.pop((owner[1], (claim["metadata"].get("annotations") or {}).get(POD_CLAIM, "")), None)
        for pod in self._pods_by_claim.get((claim["metadata"]["namespace"], claim["metadata"]["name"])):
            self._pod_seen(pod)

    def _template_seen(self, template: Document) -> None:
        metadata = template["metadata"]
        for pod in self._pods_by_template.get((metadata["namespace"], metadata["name"])):
            self._pod_seen(pod)


def _template_keys(pod: Pod) -> list[tuple[str, str]]:
    names = (entry.resource_claim_template_name for entry in pod.spec.resource_claims)
    return [(pod.metadata.namespace, name) for name in names if name]


def _owner_keys(claim: Document) -> list[tuple[str, str]]:
    owner = owner_pod(claim)
    return [] if owner is None else [(claim["metadata"].get("namespace") or "", owner[1])]
