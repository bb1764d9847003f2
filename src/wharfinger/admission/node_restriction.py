"""What a kubelet may write: its own Node, and the pods on it. After plugin/pkg/admission/noderestriction of Kubernetes."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable

from cryptography import x509
from cryptography.x509.oid import NameOID

from wharfinger.admission.authorization import Authorizer
from wharfinger.admission.node_authorizer import LEASE_NAMESPACE, node_name
from wharfinger.admission.rbac import Attributes
from wharfinger.admission.reads import Reads
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.admission.service_accounts import MIRROR
from wharfinger.api.errors import ApiError, not_found
from wharfinger.api.kinds.builtin import (
    CSI_DRIVERS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SERVICE_ACCOUNTS,
)
from wharfinger.api.pod_references import UnknownSource, api_object_reference
from wharfinger.api.registry import Document, Resource

_RESTRICTED = "node-restriction.kubernetes.io"
_KUBELET_LABELS = frozenset(
    (
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    )
)
_KUBELET_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBELET_SIGNERS = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
_CLAIM_STATUS = ("capacity", "conditions", "allocatedResourceStatuses", "allocatedResources")


class NodeRestrictionReviewer:
    """Mutating, although it changes nothing: it sees requests as they were sent."""

    def __init__(self, reads: Reads, authorizer: Authorizer) -> None:
        self._reads = reads
        self._authorizer = authorizer

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return (group, plural) in _REVIEWS

    def repeats(self, request: Request) -> bool:
        """What kubelets may do depends on the names of nodes and pods."""
        return node_name(request.user) is None

    def review(self, request: Request) -> Review:
        node = node_name(request.user)
        if node is None:
            return PASS
        if not node:
            return request.refused(f'could not determine node from user "{request.user.name}"')
        resource = request.resource
        check = _REVIEWS.get((resource.group, resource.plural))
        if check is None:
            return PASS
        try:
            why = check(self, node, request)
        except ApiError as error:
            return Review(error)
        return request.refused(why) if why else PASS

    # Each returns why the request is refused; empty if it is not.

    def _pod(self, node: str, request: Request) -> str:
        if request.subresource == "status":
            return _pod_status(node, request)
        if request.subresource == "eviction":
            return self._eviction(node, request)
        if request.subresource:
            return f"unexpected pod subresource \"{request.subresource}\", only 'status' and 'eviction' are allowed"
        if request.operation == "CREATE":
            return self._new_pod(node, request.object or {})
        if request.operation != "DELETE":
            return f'unexpected operation "{request.operation}", node "{node}" can only create and delete mirror pods'
        if self._node_of_pod(request.namespace, request.name) != node:
            return f'node "{node}" can only delete pods with spec.nodeName set to itself'
        return ""

    def _new_pod(self, node: str, pod: Document) -> str:
        metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        if MIRROR not in (metadata.get("annotations") or {}):
            return f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
        if spec.get("nodeName") != node:
            return f'node "{node}" can only create pods with spec.nodeName set to itself'
        owners = metadata.get("ownerReferences") or []
        if len(owners) > 1:
            return f'node "{node}" can only create pods with a single owner reference set to itself'
        owner = owners[0] if owners else {}
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            return f'node "{node}" can only create pods with an owner reference set to itself'
        if not owner.get("controller"):
            return f'node "{node}" can only create pods with a controller owner reference set to itself'
        if owner.get("blockOwnerDeletion"):
            return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
        found = self._reads.peek(NODES, node)
        if found is None:
            raise not_found("", "nodes", node)
        uid = found.document()["metadata"].get("uid", "")
        if owner.get("uid") != uid:
            return f"node {node} UID mismatch: expected {owner.get('uid', '')} got {uid}"
        try:
            reference = api_object_reference(spec)
        except UnknownSource as error:
            return f"error checking mirror pod for API references: {error}"
        return f'node "{node}" can not create pods that reference {reference}' if reference else ""

    def _eviction(self, node: str, request: Request) -> str:
        if request.operation != "CREATE":
            return f"unexpected operation {request.operation}"
        name = request.name or ((request.object or {}).get("metadata") or {}).get("name") or ""
        if not name:
            return "could not determine pod from request data"
        if self._node_of_pod(request.namespace, name) != node:
            return f"node {node} can only evict pods with spec.nodeName set to itself"
        return ""

    def _node_of_pod(self, namespace: str, name: str) -> str:
        return str((self._pod_document(namespace, name).get("spec") or {}).get("nodeName") or "")

    def _pod_document(self, namespace: str, name: str) -> Document:
        found = self._reads.peek(PODS, name, namespace)
        if found is None:
            raise not_found("", "pods", name)
        return found.document()

    def _node(self, node: str, request: Request) -> str:
        if request.name != node:
            return f'node "{node}" is not allowed to modify node "{request.name}"'
        new, old = request.object or {}, request.old or {}
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        metadata, old_metadata = new.get("metadata") or {}, old.get("metadata") or {}
        forbidden = _forbidden_labels(metadata.get("labels") or {}, old_metadata.get("labels") or {})
        if request.operation == "CREATE":
            if spec.get("configSource") is not None:
                return f'node "{node}" is not allowed to create pods with a non-nil configSource'
            return f'node "{node}" is not allowed to set the following labels: {forbidden}' if forbidden else ""
        if request.operation != "UPDATE":
            return ""
        if spec.get("configSource") is not None and spec["configSource"] != before.get("configSource"):
            return f'node "{node}" is not allowed to update configSource to a new non-nil configSource'
        if (spec.get("taints") or []) != (before.get("taints") or []):
            return f'node "{node}" is not allowed to modify taints'
        if (metadata.get("ownerReferences") or []) != (old_metadata.get("ownerReferences") or []):
            return f'node "{node}" is not allowed to modify ownerReferences'
        return f"is not allowed to modify labels: {forbidden}" if forbidden else ""

    def _claim(self, node: str, request: Request) -> str:
        if request.subresource != "status":
            return "may only update PVC status"
        if request.operation != "UPDATE":
            return f'unexpected operation "{request.operation}"'
        if _beyond_claim_status(request.object or {}) != _beyond_claim_status(request.old or {}):
            return f'node "{node}" is not allowed to update fields other than status.quantity and status.conditions'
        return ""

    def _service_account(self, node: str, request: Request) -> str:
        if request.operation != "CREATE" or request.subresource != "token":
            return ""
        spec = (request.object or {}).get("spec") or {}
        reference = spec.get("boundObjectRef") or {}
        if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod") or not reference.get("name"):
            return "node requested token not bound to a pod"
        uid = reference.get("uid")
        if not uid:
            return "node requested token with a pod binding without a uid"
        pod = self._pod_document(request.namespace, reference["name"])
        if uid != pod["metadata"].get("uid"):
            return (
                f"the UID in the bound object reference ({uid}) does not match the UID in record. The object might have "
                "been deleted and then recreated"
            )
        if (pod.get("spec") or {}).get("nodeName") != node:
            return "node requested token bound to a pod scheduled on a different node"
        return self._audience(request, spec.get("audiences") or [], pod)

    def _audience(self, request: Request, audiences: list[str], pod: Document) -> str:
        """A node gets tokens for the audiences that the volumes of the pod name, and for those that it is granted."""
        if len(audiences) > 1:
            return "node may only request 0 or 1 audiences"
        audience = audiences[0] if audiences else ""
        if self._names_audience(pod, audience):
            return ""
        verb = "request-serviceaccounts-token-audience"
        asked = Attributes(request.user, verb, "", audience, "", request.name, request.namespace)
        if self._authorizer.allowed(asked).allowed:
            return ""
        who = f"{request.user.name} is not authorized to request tokens for this audience"
        return f'audience "{audience}" not found in pod spec volume, {who}'

    def _names_audience(self, pod: Document, audience: str) -> bool:
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                token = source.get("serviceAccountToken")
                if token is not None and (token.get("audience") or "") == audience:
                    return True
            driver = self._driver(pod, volume)
            found = self._reads.peek(CSI_DRIVERS, driver) if driver else None
            requests = ((found.document().get("spec") or {}).get("tokenRequests") or ()) if found is not None else ()
            if any((one.get("audience") or "") == audience for one in requests):
                return True
        return False

    def _driver(self, pod: Document, volume: Document) -> str:
        """The CSI driver of a volume; empty if it has none. In-tree volumes have no driver with tokens here."""
        if (inline := volume.get("csi")) is not None:
            return str(inline.get("driver") or "")
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
        metadata = pod["metadata"]
        if volume.get("ephemeral") is not None:
            claim = f"{metadata['name']}-{volume.get('name', '')}"
        bound = self._reads.peek(PERSISTENT_VOLUME_CLAIMS, claim, metadata["namespace"]) if claim else None
        name = (bound.document().get("spec") or {}).get("volumeName") if bound is not None else None
        source = self._reads.peek(PERSISTENT_VOLUMES, name) if name else None
        csi = (source.document().get("spec") or {}).get("csi") if source is not None else None
        return str((csi or {}).get("driver") or "")

    def _lease(self, node: str, request: Request) -> str:
        if request.namespace != LEASE_NAMESPACE:
            return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
        if request.name != node:
            return "can only access node lease with the same name as the requesting node"
        return ""

    def _csi_node(self, node: str, request: Request) -> str:
        return "" if request.name == node else "can only access CSINode with the same name as the requesting node"

    def _resource_slice(self, node: str, request: Request) -> str:
        verb = {"CREATE": "create", "DELETE": "delete"}.get(request.operation)
        document = (request.object if request.operation == "CREATE" else request.old) or {}
        if verb is None or (document.get("spec") or {}).get("nodeName") == node:
            return ""
        return f"can only {verb} ResourceSlice with the same NodeName as the requesting node"

    def _pod_certificate(self, node: str, request: Request) -> str:
        if request.operation != "CREATE":
            return f"unexpected operation {request.operation}"
        if request.subresource:
            return f"unexpected subresource {request.subresource}"
        spec = (request.object or {}).get("spec") or {}
        wanted = spec.get("nodeName") or ""
        if wanted != node:
            return f'PodCertificateRequest.Spec.NodeName="{wanted}", which is not the requesting node "{node}"'
        uid = self._named(NODES, node)["metadata"].get("uid", "")
        key = f'"{request.namespace}/{spec.get("podName") or ""}"'
        if spec.get("nodeUID") != uid:
            given = f'node UID "{spec.get("nodeUID") or ""}"'
            raise _uncertain(
                f'PodCertificateRequest for pod {key} names {given}, inconsistent with the running node ("{uid}")'
            )
        pod = self._named(PODS, spec.get("podName") or "", request.namespace)
        if spec.get("podUID") != pod["metadata"].get("uid"):
            given, real = spec.get("podUID") or "", pod["metadata"].get("uid", "")
            raise _uncertain(
                f'PodCertificateRequest for pod {key} contains pod UID ("{given}") which differs from running pod "{real}"'
            )
        running = pod.get("spec") or {}
        if running.get("nodeName") != node:
            return f'pod {key} is not running on node "{node}" named in the PodCertificateRequest'
        if MIRROR in (pod["metadata"].get("annotations") or {}):
            return f"pod {key} is a mirror pod"
        return self._pod_certificate_account(request, spec, running, key)

    def _pod_certificate_account(self, request: Request, spec: Document, running: Document, key: str) -> str:
        name, real = spec.get("serviceAccountName") or "", running.get("serviceAccountName") or ""
        if name != real:
            return (
                f'PodCertificateRequest for pod {key} contains serviceAccountName ("{name}") that differs from running '
                f'pod ("{real}")'
            )
        uid = self._named(SERVICE_ACCOUNTS, name, request.namespace)["metadata"].get("uid", "")
        if spec.get("serviceAccountUID") != uid:
            given = spec.get("serviceAccountUID") or ""
            raise _uncertain(
                f'PodCertificateRequest for pod {key} names service account UID "{given}", which differs from the running '
                f'service account ("{uid}")'
            )
        signer = spec.get("signerName") or ""
        for volume in running.get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                if (source.get("podCertificate") or {}).get("signerName") == signer:
                    return ""
        verb, resource = "request-serviceaccounts-podcertificate-signer", signer.replace("/", ":")
        asked = Attributes(request.user, verb, request.resource.group, resource, "", name, request.namespace)
        if self._authorizer.allowed(asked).allowed:
            return ""
        return f'pod {key} does not mount a podCertificate projected volume for signer "{signer}"'

    def _named(self, resource: Resource, name: str, namespace: str = "") -> Document:
        """An object that a PodCertificateRequest names."""
        found = self._reads.peek(resource, name, namespace)
        if found is not None:
            return found.document()
        kind = {"nodes": "node", "pods": "pod"}.get(resource.plural, "service account")
        key = f"{namespace}/{name}" if namespace else name
        missing = f'{resource.plural.removesuffix("s")} "{name}" not found'
        raise _uncertain(f'while retrieving {kind} "{key}" named in the PodCertificateRequest: {missing}')

    def _signing_request(self, node: str, request: Request) -> str:
        spec = (request.object or {}).get("spec") or {}
        if request.operation != "CREATE" or request.subresource or spec.get("signerName") not in _KUBELET_SIGNERS:
            return ""
        try:
            asked = x509.load_pem_x509_csr(b64decode(spec.get("request") or ""))
        except (BadBase64, ValueError, TypeError):
            return "unable to parse csr: PEM block type must be CERTIFICATE REQUEST"
        names = asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if not names or names[-1].value != f"system:node:{node}":
            return f"can only create a node CSR with CN=system:node:{node}"
        return ""


def _pod_status(node: str, request: Request) -> str:
    if request.operation != "UPDATE":
        return f'unexpected operation "{request.operation}"'
    new, old = request.object or {}, request.old or {}
    if (old.get("spec") or {}).get("nodeName") != node:
        return f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
    if (new["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
        return f'node "{node}" cannot update labels through pod status'
    status, before = new.get("status") or {}, old.get("status") or {}
    if (status.get("resourceClaimStatuses") or []) != (before.get("resourceClaimStatuses") or []):
        return f'node "{node}" cannot update resource claim statues'
    if status.get("extendedResourceClaimStatus") != before.get("extendedResourceClaimStatus"):
        return f'node "{node}" cannot update extended resource claim status'
    return ""


def _beyond_claim_status(claim: Document) -> Document:
    """A claim without what a node may change in its status."""
    dropped = ("resourceVersion", "managedFields")
    metadata = {key: value for key, value in (claim.get("metadata") or {}).items() if key not in dropped}
    status = {key: value for key, value in (claim.get("status") or {}).items() if key not in _CLAIM_STATUS}
    rest = {key: value for key, value in claim.items() if key not in ("apiVersion", "kind", "metadata", "status")}
    return {**rest, "metadata": metadata, "status": status}


def _forbidden_labels(new: dict[str, str], old: dict[str, str]) -> str:
    """The labels that differ and that a node may not set, as text."""
    changed = {key for key in new.keys() | old.keys() if new.get(key) != old.get(key)}
    return ", ".join(sorted(key for key in changed if _forbidden_label(key)))


def _forbidden_label(key: str) -> bool:
    namespace, slash, _ = key.partition("/")
    if not slash:
        return False
    if _within(namespace, _RESTRICTED):
        return True
    if not (_within(namespace, "kubernetes.io") or _within(namespace, "k8s.io")):
        return False
    return key not in _KUBELET_LABELS and not any(_within(namespace, allowed) for allowed in _KUBELET_NAMESPACES)


def _within(namespace: str, parent: str) -> bool:
    return namespace == parent or namespace.endswith(f".{parent}")


def _uncertain(why: str) -> ApiError:
    """An error that is no denial, since the server may not know the object yet."""
    return ApiError(why, code=500, reason="")


_REVIEWS: dict[tuple[str, str], Callable[[NodeRestrictionReviewer, str, Request], str]] = {
    ("", "pods"): NodeRestrictionReviewer._pod,
    ("", "nodes"): NodeRestrictionReviewer._node,
    ("", "persistentvolumeclaims"): NodeRestrictionReviewer._claim,
    ("", "serviceaccounts"): NodeRestrictionReviewer._service_account,
    ("coordination.k8s.io", "leases"): NodeRestrictionReviewer._lease,
    ("storage.k8s.io", "csinodes"): NodeRestrictionReviewer._csi_node,
    ("resource.k8s.io", "resourceslices"): NodeRestrictionReviewer._resource_slice,
    ("certificates.k8s.io", "certificatesigningrequests"): NodeRestrictionReviewer._signing_request,
    ("certificates.k8s.io", "podcertificaterequests"): NodeRestrictionReviewer._pod_certificate,
}
