"""Deletes finished jobs after their `ttlSecondsAfterFinished`."""

from __future__ import annotations

from wharfinger.api.errors import Conflict, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import JOBS
from wharfinger.api.object_meta import object_key
from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.api.views import Job, view
from wharfinger.controllers.context import ContextController, ControllerContext


def expires_at(job: Job) -> float | None:
    """When the job is to be deleted; None for an unfinished job or one without TTL."""
    if job.spec.ttl_seconds_after_finished is None or job.metadata.deletion_timestamp:
        return None
    finished = next((c for c in job.status.conditions if c.type in ("Complete", "Failed") and c.status == "True"), None)
    if finished is None or not finished.last_transition_time:
        return None
    return parse_time(finished.last_transition_time) + job.spec.ttl_seconds_after_finished


class TTLAfterFinishedController(ContextController[ObjectKey]):
    name = "ttlafterfinished"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.jobs = context.documents(JOBS)
        self.jobs.add_handler(self._seen, lambda old, new: self._seen(new))

    async def reconcile(self, key: ObjectKey) -> None:
        document = self.jobs.get(key[1], key[0])
        moment = expires_at(view(document, Job)) if document is not None else None
        if moment is None:
            return
        now = self.context.now()
        if moment > now:
            self.queue.add_after(key, moment - now, background=True)
            return
        try:
            # The TTL may have changed in the meantime: the object on the server decides.
            fresh = await self.client.get(JOBS, key[1], key[0], view=Job)
            moment = expires_at(fresh)
            if moment is not None and moment <= now:
                await self.client.delete(
                    JOBS,
                    key[1],
                    key[0],
                    propagation="Foreground",
                    uid=fresh.metadata.uid,
                    resource_version=fresh.metadata.resource_version,
                )
        except NotFound:
            return
        except Conflict:
            self.queue.add(key)

    def _seen(self, document: Document) -> None:
        if (document.get("spec") or {}).get("ttlSecondsAfterFinished") is not None:
            self.queue.add(object_key(document))
