"""ResourceClass: a portable name for devices with certain properties; NodeComputeResources: the devices of one node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from wharfinger.api.columns.cells import AGE
from wharfinger.api.fields import FieldError, forbidden, immutable, invalid, required
from wharfinger.api.names import dns_subdomain
from wharfinger.api.registry import Column, Document
from wharfinger.api.schema.models import ATOMIC, Conditions, Int32, Model, doc, model_kind
from wharfinger.api.validation.devices.wording import driver_faults
from wharfinger.api.validation.resources import is_extended, is_unqualified
from wharfinger.api.validation.selectors import OPERATORS, each, label_key_faults, values_faults
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.validation import compute_resources_faults
from wharfinger.systems.resource_class.kinds.views import default_alias
from wharfinger.systems.resource_class.rules.compute_resources import name_compute_resources
from wharfinger.systems.resource_class.rules.properties import is_bound

SPELLINGS = ("resourceSelector", "labelSelector", "resourceSelectorRequirements")
"""The three spellings of the selector list in the design document."""
MAX_SELECTORS = 32
_RESERVED = ("autoProvisionConfig", "resourceRequestParameters")


class PropertyExpressionModel(Model):
    """A requirement on one property of a device."""

    key: Annotated[str, doc("The name of the property.")]
    operator: Annotated[
        Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
        doc("In and NotIn compare text; Gt and Lt compare amounts with units."),
    ]
    values: Annotated[
        list[str], ATOMIC, doc("Values to compare with: one or more for In and NotIn, exactly one for Gt and Lt.")
    ] = field(default_factory=list)


class PropertySelectorModel(Model):
    """Expressions, ANDed."""

    match_expressions: Annotated[
        list[PropertyExpressionModel], Meta(min_length=1), ATOMIC, doc("Requirements on device properties, ANDed.")
    ]


_Selectors = Annotated[
    list[PropertySelectorModel],
    Meta(max_length=MAX_SELECTORS),
    ATOMIC,
    doc("Selectors of devices, ORed. If empty, every device of the resource matches."),
]
_Spelling = Annotated[
    list[PropertySelectorModel], Meta(max_length=MAX_SELECTORS), ATOMIC, doc("Same as resourceSelector.")
]


class ResourceClassSpecModel(Model):
    """Which devices belong to the class."""

    resource_name: Annotated[str, doc("The raw resource, such as nvidia.com/gpu.", immutable=True)]
    driver: (
        Annotated[
            str,
            doc(
                "The DRA driver whose devices belong to the class. A DeviceClass of the same name is kept, which serves the alias.",
                immutable=True,
            ),
        ]
        | None
    ) = None
    resource_selector: _Selectors | None = None
    label_selector: _Spelling | None = None
    resource_selector_requirements: _Spelling | None = None
    alias: (
        Annotated[str, doc("The qualified name under which pods can request the class on any API server.")] | None
    ) = None
    scope: Annotated[
        Literal["Node", "Cluster"],
        doc(
            "Whether the devices belong to nodes or to the cluster. The latter are counted by quota, but ignored by scheduling."
        ),
    ] = "Node"
    group_by: Annotated[str, doc("Devices with the same value of this property form a group.")] | None = None
    group_size: Annotated[Int32, Meta(ge=2), doc("Devices of one group that make up one requested unit.")] | None = None
    auto_provision_config: Annotated[Any, doc("Reserved.")] = None
    resource_request_parameters: Annotated[Any, doc("Reserved.")] = None


class ResourceClassStatusModel(Model):
    """What the class matches in this cluster."""

    conditions: Conditions = field(default_factory=list)
    nodes: Annotated[Int32, doc("Nodes that have matching devices.")] = 0
    compute_resources: Annotated[Int32, doc("Matching ComputeResources on all nodes.")] = 0
    devices: Annotated[Int32, doc("Matching healthy devices on all nodes.")] = 0


class ResourceClassModel(Model):
    """A portable name under which pods request devices with certain properties."""

    spec: ResourceClassSpecModel
    status: ResourceClassStatusModel | None = None


def class_name_faults(name: str) -> list[str]:
    faults = dns_subdomain(name)
    if not faults and not is_unqualified(name) and len(name) <= 63:
        faults = ["must not be the name of a built-in Kubernetes resource"]
    return faults


def _default_class(document: Document) -> None:
    spec, metadata = document.get("spec"), document.get("metadata")
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        return
    name = metadata.get("name")
    if isinstance(name, str) and name and not spec.get("alias"):
        alias = default_alias(name)
        if is_extended(alias):
            spec["alias"] = alias


def _class_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document["spec"]
    raw = spec["resourceName"]
    if not raw:
        yield required("spec.resourceName")
    elif not is_extended(raw):
        yield invalid(
            "spec.resourceName", raw, "must be the qualified name of an extended resource, as in nvidia.com/gpu"
        )
    if old is not None and (old.get("spec") or {}).get("resourceName") != raw:
        yield immutable("spec.resourceName", raw)
    if old is not None and (old.get("spec") or {}).get("groupSize") != spec.get("groupSize"):
        # The records of pods count devices, and are compared with their requests, which count units.
        yield immutable("spec.groupSize", spec.get("groupSize"))
    for name in _RESERVED:
        if spec.get(name) is not None:
            yield forbidden(f"spec.{name}", "reserved for future use")
    given = [name for name in SPELLINGS if spec.get(name) is not None]
    for name in given[1:]:
        yield invalid(f"spec.{name}", spec[name], f"must not be set together with {given[0]}, which means the same")
    for name in given:
        for index, selector in each(spec, name):
            for position, expression in each(selector, "matchExpressions"):
                yield from _expression_faults(expression, f"spec.{name}[{index}].matchExpressions[{position}]")
    yield from _alias_faults(document)
    yield from _group_faults(spec)
    yield from _driver_faults(spec, None if old is None else old.get("spec") or {})


def _driver_faults(spec: Document, before: Document | None) -> Iterator[FieldError]:
    driver = spec.get("driver")
    if driver is not None:
        yield from driver_faults(driver, "spec.driver")
        if spec.get("scope") == "Cluster":
            yield forbidden("spec.driver", "may not be set for devices of the cluster")
    if before is not None and before.get("driver") != driver:
        yield immutable("spec.driver", driver)


def _expression_faults(expression: Document, path: str) -> Iterator[FieldError]:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    yield from label_key_faults(key, f"{path}.key")
    yield from values_faults(operator, values, path)
    if operator not in OPERATORS and len(values) == 1 and not is_bound(key or "", values[0]):
        detail = "must be a number with an optional prefix and unit, as in 15G, 15Gi or 40GBPS, or a version"
        yield invalid(f"{path}.values[0]", values[0], detail)


def _alias_faults(document: Document) -> Iterator[FieldError]:
    name = (document.get("metadata") or {}).get("name") or ""
    alias = document["spec"].get("alias")
    if alias is not None and not is_extended(alias):
        yield invalid("spec.alias", alias, "doesn't follow extended resource name standard")
    elif alias is None and name and not is_extended(default_alias(name)):
        yield required("spec.alias", "must be set, because the class name is too long for a default alias")


def _group_faults(spec: Document) -> Iterator[FieldError]:
    by, size = spec.get("groupBy"), spec.get("groupSize")
    if by is not None:
        yield from label_key_faults(by, "spec.groupBy")
    if (by is None) != (size is None):
        missing = "spec.groupBy" if by is None else "spec.groupSize"
        yield required(missing, "groupBy and groupSize must be set together")


CLASS = model_kind(
    RESOURCE_CLASSES,
    ResourceClassModel,
    short_names=("rclass",),
    name_faults=class_name_faults,
    columns=(
        Column("Resource", "spec.resourceName", description="The raw resource."),
        Column("Nodes", "status.nodes", type="integer", description="Nodes that have matching devices."),
        Column("Devices", "status.devices", type="integer", description="Matching healthy devices on all nodes."),
        Column("Alias", "spec.alias", description="The qualified name that pods can use.", priority=1),
        AGE,
    ),
    fill=_default_class,
    faults=_class_faults,
)


class ComputeResourceModel(Model):
    """Devices of one raw resource that have the same properties."""

    resource_name: Annotated[str, doc("The raw resource, such as nvidia.com/gpu.")]
    name: Annotated[str, doc("Unique on the node: the raw resource and a hash of the properties.")] = ""
    properties: Annotated[dict[str, str], doc("What the device plugin says about the devices.")] = field(
        default_factory=dict
    )
    devices: Annotated[list[str], ATOMIC, doc("The IDs of all devices.")] = field(default_factory=list)
    allocatable_devices: (
        Annotated[list[str], ATOMIC, doc("The IDs of the healthy devices. Defaults to all.")] | None
    ) = None
    device_units: Annotated[Any, doc("Reserved.")] = None
    owner: Annotated[Any, doc("Reserved.")] = None
    isolation_guarantee: Annotated[Any, doc("Reserved.")] = None


class NodeComputeResourcesSpecModel(Model):
    """The devices that the node published."""

    compute_resources: Annotated[
        list[ComputeResourceModel], ATOMIC, doc("The node's devices, grouped by resource and properties.")
    ] = field(default_factory=list)


class NodeComputeResourcesModel(Model):
    """The devices of the node of the same name, for API servers whose Node has no field for them."""

    spec: NodeComputeResourcesSpecModel = field(default_factory=NodeComputeResourcesSpecModel)


def _default_inventory(document: Document) -> None:
    spec = document.get("spec")
    if isinstance(spec, dict):
        name_compute_resources(spec.get("computeResources"))


def _inventory_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    resources = (document.get("spec") or {}).get("computeResources") or ()
    yield from compute_resources_faults(resources, "spec.computeResources")


INVENTORY = model_kind(
    NODE_COMPUTE_RESOURCES,
    NodeComputeResourcesModel,
    singular="nodecomputeresources",
    short_names=("ncr",),
    columns=(
        Column("Resources", "spec.computeResources[*].name", description="The node's ComputeResources."),
        AGE,
    ),
    fill=_default_inventory,
    faults=_inventory_faults,
)

KINDS = (CLASS, INVENTORY)
