"""Pods of workloads that do not exist yet: those that a StatefulSet creates one after the other, and one more of any."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod, view
from wharfinger.api.wording import object_name
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import BadInput


def missing_pods(stateful_sets: Iterable[Document], pods: Iterable[Pod]) -> list[Pod]:
    """The pods that StatefulSets will create once the earlier ones run. Their claims do not exist yet, so their volumes
    are left out."""
    known = {pod.metadata.key for pod in pods}
    found = []
    for document in stateful_sets:
        metadata, spec = document["metadata"], document.get("spec") or {}
        claims = {each["metadata"]["name"] for each in spec.get("volumeClaimTemplates") or ()}
        first = int((spec.get("ordinals") or {}).get("start") or 0)
        wanted = 1 if spec.get("replicas") is None else int(spec["replicas"])
        for number in range(first, first + wanted):
            name = f"{metadata['name']}-{number}"
            if (metadata.get("namespace", ""), name) not in known:
                found.append(_pod(spec["template"], name, metadata.get("namespace", ""), claims))
    return found


def _pod(template: Document, name: str, namespace: str, without: Iterable[str] = ()) -> Pod:
    spec = dict(template.get("spec") or {})
    left_out = set(without)
    spec["volumes"] = [each for each in spec.get("volumes") or () if each.get("name") not in left_out]
    metadata = {**(template.get("metadata") or {}), "name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
    return view({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, Pod)


def more_of(world: SimulatedCluster, text: str) -> tuple[str, Pod]:
    """The title of a workload, and a pod as it would create one more. Raises BadInput."""
    word, _, rest = text.partition("/")
    namespace, slash, name = rest.rpartition("/")
    kind = world.registry.find(word) if name else None
    if kind is None:
        raise BadInput([f"--more: want KIND/[NAMESPACE/]NAME of a workload, such as deployment/shop/web, not {text!r}"])
    namespace = namespace if slash else "default"
    stored = world.store.peek(kind.storage, name, namespace)
    if stored is None:
        raise BadInput([f"--more: there is no {kind.kind} {namespace}/{name}"])
    document = stored.document()
    title = f"{kind.kind} {object_name(document)}"
    if kind.storage == PODS:
        return title, _pod(document, name, namespace)
    inner: object = document
    for part in kind.pod_template.split(".") if kind.pod_template else ():
        inner = inner.get(part) if isinstance(inner, dict) else None
    if not kind.pod_template or not isinstance(inner, dict):
        raise BadInput([f"--more: {kind.kind} {namespace}/{name} has no pod template"])
    return title, _pod(inner, name, namespace)
