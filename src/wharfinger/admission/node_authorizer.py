"""The Node authorizer: what the user of a kubelet, `system:node:NAME`, may do.

After plugin/pkg/auth/authorizer/node of Kubernetes. A node reads the objects that its pods refer to. Upstream keeps a graph
of all pods for that; here pods are indexed by node when a node asks, and their references are read from the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from wharfinger.admission.rbac import Attributes, RbacDecision, RbacIndex
from wharfinger.admission.reads import ObjectVersion, Reads
from wharfinger.admission.request import User
from wharfinger.admission.service_accounts import MIRROR
from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import (
    PERSISTENT_VOLUMES,
    POD_CERTIFICATE_REQUESTS,
    PODS,
    RESOURCE_SLICES,
    VOLUME_ATTACHMENTS,
)
from wharfinger.api.pod_references import (
    config_map_names,
    resource_claim_names,
    secret_names,
    volume_claim_names,
    volume_secrets,
)
from wharfinger.api.registry import Document, Resource
from wharfinger.api.views.rbac import ClusterRole, ClusterRoleBinding

GROUP = "system:nodes"
PREFIX = "system:node:"
LEASE_NAMESPACE = "kube-node-lease"


_NO_OPINION = RbacDecision(False)
_ALLOWED = RbacDecision(True)
_WRITABLE = ("get", "create", "update", "patch", "delete")


def node_name(user: User) -> str | None:
    """The name of the node whose kubelet this user is; None for other users."""
    return user.name.removeprefix(PREFIX) if user.name.startswith(PREFIX) and GROUP in user.groups else None


class IndexedReads(Reads, Protocol):
    """Reads of a store that knows which objects changed."""

    def revision(self, resource: Resource) -> int: ...

    def changed_since(self, resource: Resource, namespace: str, revision: int) -> Sequence[str] | None: ...


class _BoundSpec(msgspec.Struct, gc=False):
    node_name: str | None = msgspec.field(name="nodeName", default=None)


class _OnNode(msgspec.Struct, gc=False):
    spec: _BoundSpec | None = None


_decode_node = msgspec.json.Decoder(_OnNode).decode


class PodsByNode:
    """The bound pods by node, brought up to date when they are asked for."""

    def __init__(self, reads: IndexedReads) -> None:
        self._reads = reads
        self._revision = -1
        self._known: dict[str, tuple[ObjectVersion, str]] = {}  # by key: the pod and the name of its node
        self._pods: dict[str, dict[str, ObjectVersion]] = {}  # by node and key

    def of(self, node: str) -> Mapping[str, ObjectVersion]:
        """The pods of a node by key (namespace/name)."""
        revision = self._reads.revision(PODS)
        if revision != self._revision:
            changed = self._reads.changed_since(PODS, "", self._revision) if self._revision >= 0 else None
            if changed is None:
                self._take_all()
            else:
                for key in changed:
                    namespace, _, name = key.partition("/")
                    self._take(key, self._reads.peek(PODS, name, namespace))
            self._revision = revision
        return self._pods.get(node, {})

    def _take_all(self) -> None:
        present = {f"{pod.namespace}/{pod.name}": pod for pod in self._reads.scan(PODS)}
        for key in self._known.keys() - present.keys():
            self._take(key, None)
        for key, pod in present.items():
            known = self._known.get(key)
            if known is None or known[0] is not pod:
                self._take(key, pod)

    def _take(self, key: str, pod: ObjectVersion | None) -> None:
        _, before = self._known.pop(key, (None, ""))
        if before:
            del self._pods[before][key]
            if not self._pods[before]:
                del self._pods[before]
        if pod is not None:
            spec = _decode_node(pod.data).spec
            node = (spec.node_name or "") if spec is not None else ""
            self._known[key] = (pod, node)
            if node:
                self._pods.setdefault(node, {})[key] = pod


_Reference = tuple[str, str]  # plural and name of an object in the namespace of the pod


class NodeAuthorizer:
    """`rules` are those of the role `system:node`; they decide about resources that are not divided among nodes."""

    def __init__(self, reads: IndexedReads, rules: ClusterRole) -> None:
        self._reads = reads
        self._pods = PodsByNode(reads)
        self._references: dict[str, tuple[ObjectVersion, frozenset[_Reference]]] = {}  # by key of a pod
        self._rules = RbacIndex([rules, _binding(rules.metadata.name)])

    def allowed(self, asked: Attributes) -> RbacDecision:
        node = node_name(asked.user)
        if node is None:
            return _NO_OPINION
        if not node:
            return RbacDecision(False, f'unknown node for user "{asked.user.name}"')
        decide = None if asked.path else _DECISIONS.get((asked.group, asked.resource))
        if decide is not None:
            why = decide(self, node, asked)
            return _ALLOWED if why is None else RbacDecision(False, why)
        return _ALLOWED if self._rules.allowed(asked).allowed else _NO_OPINION

    # Each returns why the request is denied, possibly an empty text; None if it is allowed.

    def _read_namespaced(self, node: str, asked: Attributes) -> str | None:
        if asked.verb not in ("get", "list", "watch"):
            return "can only read resources of this type"
        if asked.subresource:
            return "cannot read subresource"
        if not asked.namespace:
            return "can only read namespaced object of this type"
        return self._related(node, asked)

    def _get(self, node: str, asked: Attributes) -> str | None:
        if asked.verb != "get":
            return "can only get individual resources of this type"
        if asked.subresource:
            return "cannot get subresource"
        return self._related(node, asked)

    def _claim(self, node: str, asked: Attributes) -> str | None:
        if asked.subresource != "status":
            return self._get(node, asked)
        if asked.verb not in ("update", "patch"):
            return "can only get/update/patch this type"
        return self._related(node, asked)

    def _service_account(self, node: str, asked: Attributes) -> str | None:
        if asked.verb == "get" and not asked.subresource:
            return self._read_namespaced(node, asked)
        if asked.verb != "create" or not asked.name:
            return "can only create tokens for individual service accounts"
        if asked.subresource != "token":
            return "can only create token subresource of serviceaccount"
        return self._related(node, asked)

    def _lease(self, node: str, asked: Attributes) -> str | None:
        if asked.verb not in _WRITABLE:
            return "can only get, create, update, patch, or delete a node lease"
        if asked.namespace != LEASE_NAMESPACE:
            return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
        if asked.verb != "create" and asked.name != node:
            return "can only access node lease with the same name as the requesting node"
        return None

    def _csi_node(self, node: str, asked: Attributes) -> str | None:
        if asked.verb not in _WRITABLE:
            return "can only get, create, update, patch, or delete a CSINode"
        if asked.subresource:
            return "cannot authorize CSINode subresources"
        if asked.verb != "create" and asked.name != node:
            return "can only access CSINode with the same name as the requesting node"
        return None

    def _resource_slice(self, node: str, asked: Attributes) -> str | None:
        if asked.subresource:
            return "cannot authorize ResourceSlice subresources"
        if asked.verb == "create":
            return None  # NodeRestriction looks at the object
        if asked.verb in ("get", "update", "patch", "delete"):
            return self._related(node, asked)
        if asked.verb in ("watch", "list", "deletecollection"):
            if _selects(asked, "spec.nodeName", node):
                return None
            return "can only list/watch/deletecollection resourceslices with nodeName field selector"
        return (
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, "
            "deletecollection"
        )

    def _pod_certificate(self, node: str, asked: Attributes) -> str | None:
        if asked.subresource:
            return "nodes may not access the status subresource of PodCertificateRequests"
        if asked.verb == "create":
            return None  # NodeRestriction looks at the object
        if asked.verb == "get":
            return self._related(node, asked)
        if asked.verb in ("list", "watch"):
            if _selects(asked, "spec.nodeName", node):
                return None
            return "can only list/watch podcertificaterequests with nodeName field selector"
        return f"nodes may not {asked.verb} podcertificaterequests"

    def _node(self, node: str, asked: Attributes) -> str | None:
        if asked.subresource == "status":
            return None if asked.verb in ("update", "patch") else ""
        if asked.subresource:
            return ""
        if asked.verb in ("create", "update", "patch"):
            return None  # NodeRestriction limits it to its own
        if asked.verb not in ("get", "list", "watch"):
            return ""
        if asked.name == node:
            return None
        other = f"'{asked.name}'" if asked.name else "all nodes"
        return f"node '{node}' cannot read {other}, only its own Node object"

    def _pod(self, node: str, asked: Attributes) -> str | None:
        if asked.subresource == "status":
            return None if asked.verb in ("update", "patch") else ""
        if asked.subresource == "eviction":
            return None if asked.verb == "create" else ""
        if asked.subresource:
            return ""
        if asked.verb == "get":
            return self._get(node, asked)
        if asked.verb in ("list", "watch"):
            if _selects(asked, "spec.nodeName", node):
                return None
            if asked.name:
                return self._related(node, asked)
            return "can only list/watch pods with spec.nodeName field selector"
        return None if asked.verb in ("create", "delete") else ""

    # Relations between objects and nodes

    def _related(self, node: str, asked: Attributes) -> str | None:
        if not asked.name:
            return "No Object name found"
        if self._has_path(node, asked.resource, asked.namespace, asked.name):
            return None
        return f"no relationship found between node '{node}' and this object"

    def _has_path(self, node: str, plural: str, namespace: str, name: str) -> bool:
        if plural == "pods":
            return f"{namespace}/{name}" in self._pods.of(node)
        if plural == "volumeattachments":
            return self._names_node(VOLUME_ATTACHMENTS, name, node)
        if plural == "resourceslices":
            return self._names_node(RESOURCE_SLICES, name, node)
        if plural == "podcertificaterequests":
            return self._names_node(POD_CERTIFICATE_REQUESTS, name, node, namespace)
        if plural == "persistentvolumes":
            volume = self._reads.peek(PERSISTENT_VOLUMES, name)
            return volume is not None and self._claimed_on(node, volume.document())
        if any((plural, name) in references for references in self._references_of(node, namespace)):
            return True
        return plural == "secrets" and any(
            (namespace, name) in volume_secrets(document) and self._claimed_on(node, document)
            for document in self._volumes_naming(name)
        )

    def _names_node(self, resource: Resource, name: str, node: str, namespace: str = "") -> bool:
        try:
            found = self._reads.peek(resource, name, namespace)
        except NotFound:  # the kind is not served here
            return False
        return found is not None and (found.document().get("spec") or {}).get("nodeName") == node

    def _volumes_naming(self, text: str) -> Iterator[Document]:
        data = text.encode()
        return (found.document() for found in self._reads.scan(PERSISTENT_VOLUMES) if data in found.data)

    def _claimed_on(self, node: str, volume: Document) -> bool:
        """Whether a pod of the node uses the claim to which the volume is bound."""
        claim = (volume.get("spec") or {}).get("claimRef") or {}
        wanted = ("persistentvolumeclaims", claim.get("name") or "")
        return any(wanted in references for references in self._references_of(node, claim.get("namespace") or ""))

    def _references_of(self, node: str, namespace: str) -> Iterator[frozenset[_Reference]]:
        prefix = f"{namespace}/"
        pods = self._pods.of(node)
        if len(self._references) > 2 * len(pods) + 1024:
            self._references.clear()  # of pods that are gone, most of them
        for key, pod in pods.items():
            if key.startswith(prefix):
                known = self._references.get(key)
                if known is None or known[0] is not pod:
                    known = self._references[key] = (pod, frozenset(_references(pod.document())))
                yield known[1]


def _references(pod: Document) -> Iterator[_Reference]:
    """What a pod refers to. A mirror pod grants its node nothing, since the node made it."""
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        return
    spec = pod.get("spec") or {}
    if account := spec.get("serviceAccountName"):
        yield "serviceaccounts", account
    yield from (("secrets", name) for name in secret_names(spec))
    yield from (("configmaps", name) for name in config_map_names(spec))
    yield from (("persistentvolumeclaims", name) for name in volume_claim_names(pod))
    yield from (("resourceclaims", name) for name in resource_claim_names(pod))


def _selects(asked: Attributes, path: str, value: str) -> bool:
    return any(one.equal and one.path == path and one.value == value for one in asked.fields)


def _binding(role: str) -> ClusterRoleBinding:
    return msgspec.convert(
        {
            "metadata": {"name": role},
            "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "Group", "name": GROUP}],
        },
        ClusterRoleBinding,
    )


_Decide = Callable[[NodeAuthorizer, str, Attributes], str | None]
_DECISIONS: dict[tuple[str, str], _Decide] = {
    ("", "secrets"): NodeAuthorizer._read_namespaced,
    ("", "configmaps"): NodeAuthorizer._read_namespaced,
    ("", "persistentvolumeclaims"): NodeAuthorizer._claim,
    ("", "persistentvolumes"): NodeAuthorizer._get,
    ("resource.k8s.io", "resourceclaims"): NodeAuthorizer._get,
    ("storage.k8s.io", "volumeattachments"): NodeAuthorizer._get,
    ("", "serviceaccounts"): NodeAuthorizer._service_account,
    ("coordination.k8s.io", "leases"): NodeAuthorizer._lease,
    ("storage.k8s.io", "csinodes"): NodeAuthorizer._csi_node,
    ("resource.k8s.io", "resourceslices"): NodeAuthorizer._resource_slice,
    ("certificates.k8s.io", "podcertificaterequests"): NodeAuthorizer._pod_certificate,
    ("", "nodes"): NodeAuthorizer._node,
    ("", "pods"): NodeAuthorizer._pod,
}
