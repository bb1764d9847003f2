"""Objects that another API server stored, put into this store as they are.

Admission is not asked, and nothing that a server or controller wrote is dropped: uids, deletion timestamps, statuses and
records stay. Validation treats the object as an update without a change, so that it accepts what servers accept only
from themselves, such as selectors with merged label keys.
"""

from __future__ import annotations

from wharfinger.api.errors import invalid_object
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.api.validation import metadata as rules_of_metadata
from wharfinger.store.ledger import WriteLedger
from wharfinger.store.objects import StoredObject, key_of
from wharfinger.store.versions import copy, incoming, kind_of

# Field owners take much memory, and no decision depends on them; the version is assigned by this store.
_NOT_KEPT = ("managedFields", "selfLink", "resourceVersion")


def restore(registry: Registry, ledger: WriteLedger, resource: Resource, document: Document) -> StoredObject:
    """Stores an object in place of one with the same name, if any. Raises ApiError for an invalid one."""
    kind = kind_of(registry, resource)
    new = incoming(kind, resource, copy(document, kind))
    metadata = new["metadata"]
    for field in _NOT_KEPT:
        metadata.pop(field, None)
    name = str(metadata.get("name") or "")
    faults = rules_of_metadata.type_faults(metadata)
    if not faults:
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
        else:
            metadata.pop("namespace", None)
        if kind.default is not None:
            kind.default(new)
        faults = rules_of_metadata.create_faults(kind, metadata)
        if kind.validate is not None:
            faults = [*faults, *kind.validate(new, new)]
    if faults:
        raise invalid_object(kind.group, kind.kind, name, faults)
    before = ledger.collection(kind.group, kind.plural).latest.objects.get(key_of(metadata.get("namespace", ""), name))
    return ledger.put(kind, new, before)[1]
