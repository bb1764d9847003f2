"""Whether the API would admit new pods of the workloads that there are: pods that run are not asked again, so a policy
that refuses them shows only when they are created anew."""

from __future__ import annotations

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document, Kind
from wharfinger.apiserver.credentials import CONTROLLERS
from wharfinger.contributions import ComparedKey
from wharfinger.controllers.pod_templates import pod_from_template
from wharfinger.simulate.cluster import SimulatedCluster

_QUOTA = "exceeded quota: "  # a pod that replaces another one takes the place of that one


async def refusals(world: SimulatedCluster) -> dict[ComparedKey, str]:
    """For each workload that is not owned by another one: why a new pod of it is refused, or an empty text."""
    client = world.client("", lambda warning: None).as_user(CONTROLLERS)
    found: dict[ComparedKey, str] = {}
    for kind in world.registry:
        if not kind.builtin or not kind.pod_template.startswith("spec."):
            continue
        for workload in world.objects(kind.storage):
            if controller_of(workload) is not None or _is_finished(workload):
                continue
            metadata = workload["metadata"]
            pod = pod_from_template(_template(kind, workload), _owner(kind, metadata))
            refused = ""
            try:
                await client.create(PODS, pod, metadata["namespace"], dry_run=True)
            except ApiError as error:
                refused = "" if _QUOTA in error.message else error.message
            found[kind.kind, metadata["namespace"], metadata["name"]] = refused
    return found


def _template(kind: Kind, workload: Document) -> Document:
    value: Document = workload
    for part in kind.pod_template.split("."):
        value = value.get(part) or {}
    return value


def _owner(kind: Kind, metadata: Document) -> Document:
    return {
        "apiVersion": kind.storage.api_version,
        "kind": kind.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def _is_finished(workload: Document) -> bool:
    """Whether a Job has ended."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return workload["kind"] == "Job" and any(
        each.get("type") in ("Complete", "Failed") and each.get("status") == "True" for each in conditions
    )
