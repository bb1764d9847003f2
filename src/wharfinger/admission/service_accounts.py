"""The service account of a pod: `default` unless the pod names one, which must exist, and the volume with its token.

After plugin/pkg/admission/serviceaccount of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wharfinger.admission.request import PASS, RepeatingPodReviewer, Request, Review
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.pod_references import secret_names
from wharfinger.api.registry import Document
from wharfinger.api.token_volumes import TOKEN_PATH, TOKEN_VOLUME, token_source

DEFAULT = "default"
MIRROR = "kubernetes.io/config.mirror"
ENFORCE_SECRETS = "kubernetes.io/enforce-mountable-secrets"

_TRUE = ("1", "t", "T", "TRUE", "true", "True")  # Go's strconv.ParseBool

FindAccount = Callable[[str, str], Document | None]
"""Looks up a service account by namespace and name."""


class ServiceAccountReviewer(RepeatingPodReviewer):
    """Mutating, on creation. Without `find` names are not looked up: in a simulation service accounts need not exist.

    Containers get a volume with the account's token, the cluster's root certificate and the namespace if `token_volume`
    is the name of that volume. Only an API server that can issue tokens adds it. A simulation does not: nothing there
    reads the volume, and pods would be reported with a volume of random name that no manifest contains. Upstream gives
    every pod a name of its own; here all have the same, so that the specs of a workload's pods stay equal and what is
    cached by spec (defaults, validation) serves them all.

    Upstream also refuses `default` until its controller has created it; here pods need not wait for that.
    """

    def __init__(self, find: FindAccount | None = None, token_volume: str = "") -> None:
        self._find = find
        self._token_volume = token_volume

    def review(self, request: Request) -> Review:
        if not request.targets(PODS):
            return PASS
        pod = request.object or {}
        spec = pod.get("spec")
        if request.operation != "CREATE" or not isinstance(spec, dict):
            return PASS
        if MIRROR in (pod["metadata"].get("annotations") or {}):
            return PASS  # a mirror pod has no service account
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        if self._find is None:
            return PASS
        account = self._find(request.namespace, name)
        if account is None:
            if name != DEFAULT:
                return request.refused(_unknown(request.namespace, name))
            account = {}
        if self._token_volume and _automounts(spec, account):
            _mount_token(spec, self._token_volume)
        if account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [dict(each) for each in account["imagePullSecrets"]]
        return PASS


class SecretReferenceReviewer:
    """Validating: mirror pods name no account and no secrets, and pods of an account with the annotation
    `kubernetes.io/enforce-mountable-secrets` name only secrets that the account lists."""

    def __init__(self, find: FindAccount) -> None:
        self._find = find

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return plural == PODS.plural and not group and subresource in ("", "ephemeralcontainers")

    def repeats(self, request: Request) -> bool:
        return True

    def review(self, request: Request) -> Review:
        pod = request.object or {}
        spec = pod.get("spec")
        ephemeral = request.subresource == "ephemeralcontainers"
        if request.operation != ("UPDATE" if ephemeral else "CREATE") or not isinstance(spec, dict):
            return PASS
        if not ephemeral and MIRROR in (pod["metadata"].get("annotations") or {}):
            why = _mirror_fault(spec)
            return request.refused(why) if why else PASS
        name = spec.get("serviceAccountName") or ""
        account = self._find(request.namespace, name) if name else None
        if account is None:
            if not ephemeral or name == DEFAULT:
                return PASS
            missing = f"no service account specified for pod {request.namespace}/{request.name}"
            return request.refused(_unknown(request.namespace, name) if name else missing)
        annotations = (account.get("metadata") or {}).get("annotations") or {}
        if annotations.get(ENFORCE_SECRETS) not in _TRUE:
            return PASS
        faults = _ephemeral_faults(spec, account) if ephemeral else _secret_faults(spec, account)
        why = next(faults, "")
        return request.refused(why) if why else PASS


def _unknown(namespace: str, name: str) -> str:
    return f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'


def _automounts(spec: Document, account: Document) -> bool:
    """The pod's preference wins over the account's."""
    for holder in (spec, account):
        if (wanted := holder.get("automountServiceAccountToken")) is not None:
            return wanted is True
    return True


def _mount_token(spec: Document, name: str) -> None:
    volumes: list[Document] = spec.get("volumes") or []
    names = (str(volume.get("name") or "") for volume in volumes)
    found = next((each for each in names if each.startswith(TOKEN_VOLUME)), "")
    needed = False
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts = container.get("volumeMounts") or []
        if any(mount.get("mountPath") == TOKEN_PATH for mount in mounts):
            continue  # what is mounted there already takes the place of the token
        container["volumeMounts"] = [*mounts, {"name": found or name, "readOnly": True, "mountPath": TOKEN_PATH}]
        needed = True
    if needed and not found:
        spec["volumes"] = [*volumes, {"name": name, "projected": token_source()}]


def _mirror_fault(spec: Document) -> str:
    if spec.get("serviceAccountName"):
        return "a mirror pod may not reference service accounts"
    if any(secret_names(spec)):
        return "a mirror pod may not reference secrets"
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken") is not None:
                return "a mirror pod may not use ServiceAccountToken volume projections"
    return ""


_NOT_REFERENCED = "is not allowed because service account {} does not reference that secret"


def _secret_faults(spec: Document, account: Document) -> Iterator[str]:
    allowed, owner = _secrets_of(account)
    rest = _NOT_REFERENCED.format(owner)
    for volume in spec.get("volumes") or ():
        if (secret := volume.get("secret")) is not None and secret.get("secretName") not in allowed:
            yield f'volume with secret.secretName="{secret.get("secretName", "")}" {rest}'
    yield from _container_faults(spec.get("initContainers"), "init container", allowed, rest)
    yield from _container_faults(spec.get("containers"), "container", allowed, rest)
    pulled = {secret.get("name") for secret in account.get("imagePullSecrets") or ()}
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if secret.get("name") not in pulled:
            yield (
                f'imagePullSecrets[{index}].name="{secret.get("name", "")}" is not allowed because service account '
                f"{owner} does not reference that imagePullSecret"
            )


def _ephemeral_faults(spec: Document, account: Document) -> Iterator[str]:
    allowed, owner = _secrets_of(account)
    rest = _NOT_REFERENCED.format(owner)
    yield from _container_faults(spec.get("ephemeralContainers"), "ephemeral container", allowed, rest)


def _secrets_of(account: Document) -> tuple[set[str | None], str]:
    """The secrets that a service account references, and its name."""
    names = {secret.get("name") for secret in account.get("secrets") or ()}
    return names, (account.get("metadata") or {}).get("name", "")


def _container_faults(
    containers: list[Document] | None, what: str, allowed: set[str | None], rest: str
) -> Iterator[str]:
    for container in containers or ():
        name = container.get("name", "")
        for variable in container.get("env") or ():
            reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
            if reference is not None and reference.get("name") not in allowed:
                named = f'{variable.get("name", "")} referencing secret.secretName="{reference.get("name", "")}"'
                yield f"{what} {name} with envVar {named} {rest}"
        for source in container.get("envFrom") or ():
            reference = source.get("secretRef")
            if reference is not None and reference.get("name") not in allowed:
                yield f'{what} {name} with envFrom referencing secret.secretName="{reference.get("name", "")}" {rest}'
