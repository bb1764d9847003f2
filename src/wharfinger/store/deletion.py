"""Deletion with preconditions, grace periods, finalizers and propagation, as in the API server's generic registry.

The garbage collector, which acts on the `orphan` and `foregroundDeletion` finalizers, is a controller.
"""

from __future__ import annotations

from msgspec.structs import replace

from wharfinger.api.errors import conflict, forbidden, invalid_object
from wharfinger.api.fields import invalid, not_supported
from wharfinger.api.finalizers import with_propagation
from wharfinger.api.numbers import parse_uint64
from wharfinger.api.registry import Document
from wharfinger.api.requests import DeleteOptions
from wharfinger.api.times import format_time, parse_time
from wharfinger.store import namespaces, rules
from wharfinger.store.objects import StoredObject, Written
from wharfinger.store.versions import converted, current
from wharfinger.store.writes import Call, Overtaken, Writer

_ATTEMPTS = 5


class Deleter:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def delete(self, call: Call, options: DeleteOptions) -> Written:
        _check_options(options)
        for _ in range(_ATTEMPTS):
            try:
                return await self._delete(call, options)
            except Overtaken:
                continue
        raise conflict(call.resource.group, call.kind.plural, call.name)

    async def _delete(self, call: Call, options: DeleteOptions) -> Written:
        stored = self._writer.existing(call)
        document = await converted(lambda: current(call.kind, stored))
        check_preconditions(call, stored, options)
        if rules.is_namespace(call.kind) and call.name in namespaces.PROTECTED:
            raise forbidden("", "namespaces", call.name, "this namespace may not be deleted")
        chain = self._writer.chain
        request = call.request("DELETE", None, await converted(lambda: current(call.kind, stored)))
        await chain.mutate(request, call.warnings)
        await chain.validate(request, call.warnings)
        if self._writer.latest(call.kind, call.namespace, call.name) is not stored:
            raise Overtaken
        chain.finish(request, call.warnings)
        if call.kind.orphaning_warning and not options.propagation:
            call.warnings.append(call.kind.orphaning_warning)
        return await self.carry_out(call, document, stored, options)

    async def carry_out(self, call: Call, document: Document, stored: StoredObject, options: DeleteOptions) -> Written:
        """Carries out an admitted deletion: removes the object, or marks it for deletion."""
        if rules.is_namespace(call.kind):
            if not document["metadata"].get("deletionTimestamp"):
                namespaces.start_termination(document, options, self._writer.identities.time())
                return await self._mark(call, document, stored)
            if (document.get("spec") or {}).get("finalizers"):
                return await self._unchanged(call, document, stored)
        if self._pending(document, options) and call.kind.graceful:
            return await self._unchanged(call, document, stored)
        graceful = call.kind.graceful and self._grace(document, options)
        metadata = document["metadata"]
        finalizers = with_propagation(metadata.get("finalizers") or (), options.propagation, orphans=call.kind.orphans)
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        if finalizers and not graceful:
            self._mark_deleting(metadata)
        if finalizers or (graceful and metadata["deletionGracePeriodSeconds"]):
            return await self._mark(call, document, stored)
        if graceful and not call.dry_run:
            # Kubernetes writes the deletion timestamp before it removes the object, so watchers see both events.
            document, stored = self._writer.ledger.put(call.kind, document, stored)
        return await self._remove(call, document, stored)

    def _pending(self, document: Document, options: DeleteOptions) -> bool:
        """Whether a graceful deletion is in progress that this request does not shorten."""
        metadata = document["metadata"]
        period = metadata.get("deletionGracePeriodSeconds")
        if not metadata.get("deletionTimestamp") or not period:
            return False
        asked = options.grace_period
        return asked is None or (asked if asked >= 0 else 1) >= period

    def _grace(self, document: Document, options: DeleteOptions) -> bool:
        """Sets or shortens the grace period; returns False if a deletion without one is already in progress."""
        metadata = document["metadata"]
        now = self._writer.identities.now()
        asked = options.grace_period
        if asked is not None and asked < 0:
            asked = 1
        if metadata.get("deletionTimestamp"):
            before = metadata.get("deletionGracePeriodSeconds")
            if not before:
                return False
            period = asked or 0
            moment = parse_time(metadata["deletionTimestamp"]) - before + period
            if moment < now:
                # The new period has already passed. The deletion stays graceful: the kubelet has to confirm it.
                moment, period = now, min(period, 1)
        else:
            spec, status = document.get("spec") or {}, document.get("status") or {}
            period = asked if asked is not None else spec.get("terminationGracePeriodSeconds") or 0
            if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
                period = 0
            period = 1 if period < 0 else period
            moment = now + period
            if metadata.get("generation"):
                metadata["generation"] += 1
        metadata["deletionTimestamp"] = format_time(moment)
        metadata["deletionGracePeriodSeconds"] = period
        return True

    def _mark_deleting(self, metadata: Document) -> None:
        now = self._writer.identities.now()
        present = metadata.get("deletionTimestamp")
        if not present and metadata.get("generation"):
            metadata["generation"] += 1
        if not present or parse_time(present) > now:
            metadata["deletionTimestamp"] = format_time(now)
        metadata["deletionGracePeriodSeconds"] = 0

    async def _mark(self, call: Call, document: Document, stored: StoredObject) -> Written:
        if document == stored.document():
            return await self._unchanged(call, document, stored)
        if call.dry_run:
            return await call.answer(document, None)
        document, written = self._writer.ledger.put(call.kind, document, stored)
        await self._writer.ledger.settled()
        return await call.answer(document, written)

    async def _unchanged(self, call: Call, document: Document, stored: StoredObject) -> Written:
        await self._writer.ledger.settled()
        return await call.answer(document, stored)

    async def _remove(self, call: Call, document: Document, stored: StoredObject) -> Written:
        if not call.dry_run:
            gone = self._writer.ledger.remove(call.kind, stored)
            document["metadata"]["resourceVersion"] = str(gone.version)
            await self._writer.ledger.settled()
        return replace(await call.answer(document, None), deleted=True)


def _check_options(options: DeleteOptions) -> None:
    if options.propagation not in ("", "Orphan", "Background", "Foreground"):
        fault = not_supported("propagationPolicy", options.propagation, ("Background", "Foreground", "Orphan"))
        raise invalid_object("meta.k8s.io", "DeleteOptions", "", [fault])
    if options.resource_version and parse_uint64(options.resource_version) is None:
        fault = invalid("preconditions.resourceVersion", options.resource_version, "must be a resource version")
        raise invalid_object("meta.k8s.io", "DeleteOptions", "", [fault])


def check_preconditions(call: Call, stored: StoredObject, options: DeleteOptions) -> None:
    if options.uid and options.uid != stored.uid:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({stored.uid}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(call.kind.group, call.kind.kind, call.name, why)
    if options.resource_version and options.resource_version != str(stored.version):
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({stored.version}). The object might have been modified"
        )
        raise conflict(call.kind.group, call.kind.kind, call.name, why)
