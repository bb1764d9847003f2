"""Columns of storage, access control, leases, webhooks and networking."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.api.columns.cells import AGE, CREATED_AT, NONE, UNSET, computed, selector_text, spec, status
from wharfinger.api.registry import Column, Document

_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def _class_name(document: Document) -> str:
    metadata = document.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    mark = " (default)" if any(annotations.get(name) == "true" for name in _DEFAULT) else ""
    return f"{metadata.get('name', '')}{mark}"


STORAGE_CLASS_COLUMNS = (
    computed("Name", _class_name),
    Column("Provisioner", "provisioner"),
    computed("ReclaimPolicy", lambda document: document.get("reclaimPolicy") or "Delete"),
    computed("VolumeBindingMode", lambda document: document.get("volumeBindingMode") or "Immediate"),
    computed("AllowVolumeExpansion", lambda document: "true" if document.get("allowVolumeExpansion") else "false"),
    AGE,
)
CSI_NODE_COLUMNS = (computed("Drivers", lambda node: len(spec(node).get("drivers") or ()), type="integer"), AGE)


def _flag(field: str, *, default: bool) -> Callable[[Document], bool]:
    return lambda driver: bool(spec(driver).get(field, default))


CSI_DRIVER_COLUMNS = (
    computed("AttachRequired", _flag("attachRequired", default=True), type="boolean"),
    computed("PodInfoOnMount", _flag("podInfoOnMount", default=False), type="boolean"),
    computed("StorageCapacity", _flag("storageCapacity", default=False), type="boolean"),
    computed(
        "TokenRequests",
        lambda driver: ",".join(one.get("audience", "") for one in spec(driver).get("tokenRequests") or ()) or UNSET,
    ),
    computed("RequiresRepublish", _flag("requiresRepublish", default=False), type="boolean"),
    computed("Modes", lambda driver: ",".join(spec(driver).get("volumeLifecycleModes") or ()) or NONE),
    AGE,
)
STORAGE_CAPACITY_COLUMNS = (Column("StorageClassName", "storageClassName"), Column("Capacity", "capacity"))
VOLUME_ATTACHMENT_COLUMNS = (
    Column("Attacher", "spec.attacher"),
    computed("PV", lambda document: (spec(document).get("source") or {}).get("persistentVolumeName") or ""),
    Column("Node", "spec.nodeName"),
    computed("Attached", lambda document: bool(status(document).get("attached")), type="boolean"),
    AGE,
)

ROLE_COLUMNS = (CREATED_AT,)


def _subjects(kind: str) -> Callable[[Document], str]:
    def of(binding: Document) -> str:
        names = []
        for subject in binding.get("subjects") or ():
            if subject.get("kind") == kind:
                prefix = f"{subject.get('namespace', '')}/" if kind == "ServiceAccount" else ""
                names.append(f"{prefix}{subject.get('name', '')}")
        return ", ".join(names)

    return of


def _role(binding: Document) -> str:
    reference = binding.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


BINDING_COLUMNS = (
    computed("Role", _role),
    AGE,
    computed("Users", _subjects("User"), wide=True),
    computed("Groups", _subjects("Group"), wide=True),
    computed("ServiceAccounts", _subjects("ServiceAccount"), wide=True),
)
LEASE_COLUMNS = (Column("Holder", "spec.holderIdentity"), AGE)
WEBHOOK_COLUMNS = (computed("Webhooks", lambda document: len(document.get("webhooks") or ()), type="integer"), AGE)


def _param_kind(policy: Document) -> str:
    kind = spec(policy).get("paramKind")
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET


def _param_ref(binding: Document) -> str:
    ref = spec(binding).get("paramRef")
    if not ref:
        return UNSET
    namespace = ref.get("namespace") or "*"
    if ref.get("name"):
        return f"{namespace}/{ref['name']}"
    return f"{namespace}/{selector_text(ref.get('selector'))}" if ref.get("selector") else UNSET


ADMISSION_POLICY_COLUMNS = (
    computed("Validations", lambda policy: len(spec(policy).get("validations") or ()), type="integer"),
    computed("ParamKind", _param_kind),
    AGE,
)
ADMISSION_POLICY_BINDING_COLUMNS = (Column("PolicyName", "spec.policyName"), computed("ParamRef", _param_ref), AGE)
DEFINITION_COLUMNS = (CREATED_AT,)
LIMIT_RANGE_COLUMNS = (CREATED_AT,)


def _hosts(ingress: Document) -> str:
    hosts = [rule["host"] for rule in spec(ingress).get("rules") or () if rule.get("host")]
    if not hosts:
        return "*"
    return ",".join(hosts[:3]) + (f" + {len(hosts) - 3} more..." if len(hosts) > 3 else "")


def _address(ingress: Document) -> str:
    found = (status(ingress).get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(one.get("ip") or one.get("hostname") or "" for one in found)


INGRESS_COLUMNS = (
    computed("Class", lambda ingress: spec(ingress).get("ingressClassName") or NONE),
    computed("Hosts", _hosts),
    computed("Address", _address),
    computed("Ports", lambda ingress: "80, 443" if spec(ingress).get("tls") else "80"),
    AGE,
)


def _parameters(document: Document) -> str:
    parameters = spec(document).get("parameters")
    if not parameters:
        return NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"


INGRESS_CLASS_COLUMNS = (Column("Controller", "spec.controller"), computed("Parameters", _parameters), AGE)
NETWORK_POLICY_COLUMNS = (computed("Pod-Selector", lambda policy: selector_text(spec(policy).get("podSelector"))), AGE)


def _few(texts: list[str]) -> str:
    return ",".join(texts[:3]) + (f" + {len(texts) - 3} more..." if len(texts) > 3 else "") if texts else UNSET


ENDPOINT_SLICE_COLUMNS = (
    Column("AddressType", "addressType"),
    computed("Ports", lambda slices: _few([str(p.get("port", "*")) for p in slices.get("ports") or ()])),
    computed(
        "Endpoints",
        lambda slices: _few([a for one in slices.get("endpoints") or () for a in one.get("addresses") or ()]),
    ),
    AGE,
)
