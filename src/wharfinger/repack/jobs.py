"""The PodMigrationJob of a move."""

from __future__ import annotations

from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.repack.plans import RepackMove

KIND = "PodMigrationJob"


class NoMigration(RuntimeError):
    """The system that migrates pods is switched off."""


def migration_jobs(registry: Registry) -> Resource:
    kind = registry.find(KIND)
    if kind is None:
        raise NoMigration(f"moves need {KIND}, which is not served: the Reservation system is switched off")
    return kind.storage


def job_of(move: RepackMove, name: str) -> Document:
    namespace, _, pod = move.pod.partition("/")
    template = {"spec": {"template": {"spec": {"nodeName": move.target}}}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"podRef": {"namespace": namespace, "name": pod}, "reservationOptions": {"template": template}},
    }


def outcome_of(job: Document, move: RepackMove) -> str:
    """Why an ended job did not do what was planned; empty if it did."""
    status = job.get("status") or {}
    if status.get("phase") == "Succeeded" and status.get("nodeName") == move.target:
        return ""
    why = status.get("message") or status.get("reason") or f"it is {status.get('status') or 'not finished'}"
    return f"{move.pod} does not get to {move.target}: {why}"
