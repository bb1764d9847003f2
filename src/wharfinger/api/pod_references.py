"""The API objects that a pod or a persistent volume names, as documents.

After pkg/api/v1/pod, pkg/api/v1/persistentvolume and pkg/api/pod of Kubernetes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.registry import Document

_REFERRING = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
"""Volume sources with a `secretRef`."""

# Volume sources that read nothing from the API.
_LOCAL = (
    "awsElasticBlockStore", "azureDisk", "cephfs", "cinder", "downwardAPI", "emptyDir", "fc", "flexVolume", "flocker",
    "gcePersistentDisk", "gitRepo", "hostPath", "image", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume",
    "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
)  # fmt: skip
_FROM_API = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_PROJECTED_FROM_API = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


class UnknownSource(ValueError):
    """A volume has no source that Kubernetes knows."""


def _containers(spec: Document) -> Iterator[Document]:
    for part in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(part) or ()


def secret_names(spec: Document) -> Iterator[str]:
    """The secrets that a pod spec names, possibly several times."""
    return filter(None, _secret_names(spec))


def _secret_names(spec: Document) -> Iterator[str | None]:
    for reference in spec.get("imagePullSecrets") or ():
        yield reference.get("name")
    for container in _containers(spec):
        yield from _variable_names(container, "secretRef", "secretKeyRef")
    for volume in spec.get("volumes") or ():
        if (source := volume.get("azureFile")) is not None or (source := volume.get("secret")) is not None:
            yield source.get("secretName")
        elif (source := volume.get("projected")) is not None:
            for projection in source.get("sources") or ():
                yield (projection.get("secret") or {}).get("name")
        elif (source := volume.get("csi")) is not None:
            yield (source.get("nodePublishSecretRef") or {}).get("name")
        else:
            for field in _REFERRING:
                yield ((volume.get(field) or {}).get("secretRef") or {}).get("name")


def config_map_names(spec: Document) -> Iterator[str]:
    return filter(None, _config_map_names(spec))


def _config_map_names(spec: Document) -> Iterator[str | None]:
    for container in _containers(spec):
        yield from _variable_names(container, "configMapRef", "configMapKeyRef")
    for volume in spec.get("volumes") or ():
        yield (volume.get("configMap") or {}).get("name")
        for projection in (volume.get("projected") or {}).get("sources") or ():
            yield (projection.get("configMap") or {}).get("name")


def _variable_names(container: Document, whole: str, key: str) -> Iterator[str | None]:
    for source in container.get("envFrom") or ():
        yield (source.get(whole) or {}).get("name")
    for variable in container.get("env") or ():
        yield ((variable.get("valueFrom") or {}).get(key) or {}).get("name")


def volume_claim_names(pod: Document) -> Iterator[str]:
    """The claims of a pod's volumes; that of an ephemeral volume has the names of pod and volume."""
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if (claim := volume.get("persistentVolumeClaim")) is not None:
            if name := claim.get("claimName"):
                yield name
        elif volume.get("ephemeral") is not None:
            yield f"{pod['metadata']['name']}-{volume.get('name', '')}"


def resource_claim_names(pod: Document) -> Iterator[str]:
    """The resource claims of a pod that exist, by its status for those made from templates."""
    status = pod.get("status") or {}
    made = {entry.get("name"): entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or ()}
    for claim in (pod.get("spec") or {}).get("resourceClaims") or ():
        if name := claim.get("resourceClaimName") or made.get(claim.get("name")):
            yield name
    if name := (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"):
        yield name


def api_object_reference(spec: Document) -> str:
    """Which API objects a pod spec refers to, in upstream's words; empty if none. Raises UnknownSource."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if any(secret_names(spec)):
        return "secrets"
    if any(config_map_names(spec)):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        if found := _volume_reference(volume):
            return found
    return ""


def _volume_reference(volume: Document) -> str:
    if any(volume.get(field) is not None for field in _LOCAL):
        return ""
    for field, words in _FROM_API.items():
        if volume.get(field) is not None:
            return words
    projected = volume.get("projected")
    if projected is None:
        raise UnknownSource(f'unknown volume type for volume  "{volume.get("name", "")}"')
    for source in projected.get("sources") or ():
        for field, words in _PROJECTED_FROM_API.items():
            if source.get(field) is not None:
                return words
        if source.get("downwardAPI") is None:
            raise UnknownSource(f'unknown source for projected volume "{volume.get("name", "")}"')
    return ""


def volume_secrets(volume: Document) -> Iterator[tuple[str, str]]:
    """Namespace and name of the secrets of a PersistentVolume that its node has to read."""
    spec = volume.get("spec") or {}
    claimed = (spec.get("claimRef") or {}).get("namespace") or ""
    if (source := spec.get("azureFile")) is not None:
        if source.get("secretName"):
            yield source.get("secretNamespace") or claimed, source["secretName"]
        return
    for field in _REFERRING:
        if (reference := (spec.get(field) or {}).get("secretRef")) is not None and reference.get("name"):
            given = reference.get("namespace") or ""
            # Volumes of these two kinds always had the namespace in the reference.
            yield given if field in ("cinder", "storageos") else given or claimed, reference["name"]
    for field in ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"):
        if (reference := (spec.get("csi") or {}).get(field)) is not None and reference.get("name"):
            yield reference.get("namespace") or "", reference["name"]
