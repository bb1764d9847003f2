"""Builds the `Kind` of a CustomResourceDefinition: names, scope, versions, schema, columns and subresources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import invalid_object
from wharfinger.api.fields import FieldError
from wharfinger.api.kinds.builtin import CUSTOM_RESOURCE_DEFINITIONS
from wharfinger.api.registry import Column, Document, Kind, Scale
from wharfinger.api.schema import structural
from wharfinger.api.schema.tree import ABSENT, PRESERVE, structural_schema
from wharfinger.apiserver import custom_rules
from wharfinger.apiserver.conversion import WebhookConversion
from wharfinger.apiserver.discovery import version_priority
from wharfinger.apiserver.tables import AGE
from wharfinger.apiserver.webhook_calls import WebhookCaller

_ANYTHING: Document = {"type": "object", PRESERVE: True}


def kind_of(definition: Document, caller: WebhookCaller | None = None) -> Kind | None:
    """The kind of a definition; None while no version is served.

    Its objects are converted between versions by the webhook of the definition, if it has one and there is a `caller`;
    otherwise only the name of the version changes.
    """
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    served = [version for version in spec.get("versions") or [] if version.get("served")]
    storage = next((version for version in spec.get("versions") or [] if version.get("storage")), None)
    if not served or storage is None:
        return None
    served.sort(key=lambda version: version_priority(version["name"]))
    schemas = {version["name"]: _schema(version) for version in spec["versions"]}
    stored = structural_schema(schemas[storage["name"]])
    below = storage.get("subresources") or {}
    generation = (definition.get("metadata") or {}).get("generation") or 1

    def default(document: Document) -> None:
        structural.prune(stored, document)
        structural.default(stored, document)

    ruled = custom_rules.has_rules(schemas[storage["name"]])

    def validate(document: Document, old: Document | None) -> list[FieldError]:
        before = ABSENT if old is None else old
        errors = structural.validate(stored, document, "", before)
        if ruled and not errors:
            errors = custom_rules.faults(stored, document, before)
        return errors

    return Kind(
        spec["group"],
        names["kind"],
        names["plural"],
        versions=tuple(version["name"] for version in served),
        namespaced=spec.get("scope") == "Namespaced",
        singular=names.get("singular") or names["kind"].lower(),
        listed_as=names.get("listKind") or "",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        storage_version=storage["name"],
        status=below.get("status") is not None,
        scale=_scale(below.get("scale")),
        selectable=_selectable(storage),
        selectable_in={version["name"]: _selectable(version) for version in served},
        columns=_columns(served[0]),
        default=default,
        refresh=default if generation > 1 else None,  # later than the first: older objects may exist
        revision=generation,
        validate=validate,
        conversion=_conversion(definition, schemas, caller),
        schema=lambda version: schemas[version],
        custom=True,
    )


def _conversion(
    definition: Document, schemas: Mapping[str, Document], caller: WebhookCaller | None
) -> WebhookConversion | None:
    if caller is None or (definition["spec"].get("conversion") or {}).get("strategy") != "Webhook":
        return None
    trees = {version: structural_schema(schema) for version, schema in schemas.items()}
    return WebhookConversion(definition, trees, caller)


def _schema(version: Document) -> Document:
    found: Document = (version.get("schema") or {}).get("openAPIV3Schema") or _ANYTHING
    return found


def _selectable(version: Document) -> tuple[str, ...]:
    return tuple(_path(field.get("jsonPath")) for field in version.get("selectableFields") or ())


def _path(text: Any) -> str:
    return str(text or "").lstrip(".")


def _scale(scale: Document | None) -> Scale | None:
    if scale is None:
        return None
    selector = _path(scale.get("labelSelectorPath"))
    return Scale(_path(scale.get("specReplicasPath")), _path(scale.get("statusReplicasPath")), selector)


def _columns(version: Document) -> tuple[Column, ...]:
    columns = version.get("additionalPrinterColumns")
    if not columns:
        return (AGE,)
    return tuple(
        Column(
            column.get("name", ""),
            _path(column.get("jsonPath")),
            column.get("type", "string"),
            column.get("description", ""),
            column.get("priority", 0),
        )
        for column in columns
    )


class DefinitionReviewer:
    """Validating: rejects definitions whose validation rules do not compile."""

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return (group, plural) == (CUSTOM_RESOURCE_DEFINITIONS.group, CUSTOM_RESOURCE_DEFINITIONS.plural)

    def review(self, request: Request) -> Review:
        at = request.resource
        if (at.group, at.plural) != (CUSTOM_RESOURCE_DEFINITIONS.group, CUSTOM_RESOURCE_DEFINITIONS.plural):
            return PASS
        versions = ((request.object or {}).get("spec") or {}).get("versions") or []
        errors = [
            fault
            for index, version in enumerate(versions)
            for fault in custom_rules.schema_faults(_schema(version), f"spec.versions[{index}].schema.openAPIV3Schema")
        ]
        return Review(invalid_object(at.group, at.kind, request.name, errors)) if errors else PASS
