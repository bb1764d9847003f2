"""Migrations of stored objects to the storage version of their kind."""

from __future__ import annotations

from wharfinger.api.columns.cells import computed, spec, status
from wharfinger.api.defaults.walk import typed, with_status
from wharfinger.api.registry import Document, Kind
from wharfinger.api.validation.common import checked
from wharfinger.api.validation.storage_migration import OUTCOMES, migration_rules, migration_status_rules

_VERSION, _KIND = "storagemigration.k8s.io/v1", "StorageVersionMigration"


def _resource(document: Document) -> str:
    resource = spec(document).get("resource") or {}
    return ".".join(filter(None, (resource.get("resource"), resource.get("group"))))


def _state(document: Document) -> str:
    true = [one.get("type") for one in status(document).get("conditions") or () if one.get("status") == "True"]
    known = [type for type in true if type in ("Running", *OUTCOMES)]
    return str(known[-1]) if known else "Unknown"


STORAGE_VERSION_MIGRATION = Kind(
    "storagemigration.k8s.io", _KIND, "storageversionmigrations", namespaced=False, status=True, generation=False,
    unconditional_update=False, default=typed(), prepare_create=with_status(),
    validate=checked(_VERSION, _KIND, migration_rules),
    validate_subresource={"status": checked(_VERSION, _KIND, migration_status_rules)},
    columns=(computed("Resource", _resource), computed("Status", _state)), in_snapshots=False,
)  # fmt: skip

KINDS = (STORAGE_VERSION_MIGRATION,)
