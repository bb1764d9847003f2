"""What several components do with pods: the index by node, status patches, and deletion with a reason."""

from __future__ import annotations

from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.views.meta import ObjectMeta
from wharfinger.api.views.pods import Pod
from wharfinger.client.informer import Index, Informer
from wharfinger.client.interface import Client


def index_by_node(pods: Informer[Pod]) -> Index[Pod]:
    """Pods by the name of the node that they are bound to."""
    return pods.index("node", lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())


async def patch_pod_status(client: Client, metadata: ObjectMeta, status: Document) -> None:
    """A strategic merge patch, so that conditions merge by type. Refused if the name belongs to another pod by now."""
    await client.patch(
        PODS,
        metadata.name,
        {"metadata": {"uid": metadata.uid}, "status": status},
        metadata.namespace,
        type=PatchType.STRATEGIC,
        subresource="status",
        brief=True,
    )


async def delete_disrupted_pod(client: Client, metadata: ObjectMeta, condition: Document) -> None:
    """Records why the pod is disrupted (its DisruptionTarget condition), then deletes it."""
    await patch_pod_status(client, metadata, {"conditions": [condition]})
    await client.delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid)
