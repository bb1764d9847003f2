"""ManagedCluster, ManagedClusterSet and ManagedClusterSetBinding: the fleet, and which namespaces may select from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from wharfinger.api.columns.cells import AGE
from wharfinger.api.fields import FieldError
from wharfinger.api.registry import Column, Document
from wharfinger.api.schema.models import (
    QUALIFIED_NAME,
    ConditionModel,
    Conditions,
    Int32,
    Model,
    Quantity,
    Time,
    doc,
    keyed,
    model_kind,
)
from wharfinger.api.selectors import LabelSelector
from wharfinger.api.validation.selectors import label_selector_faults
from wharfinger.systems.placement.kinds.names import (
    MANAGED_CLUSTER_SET_BINDINGS,
    MANAGED_CLUSTER_SETS,
    MANAGED_CLUSTERS,
)
from wharfinger.systems.placement.kinds.placement import condition_column


def _default(value: dict[str, Any]) -> Meta:
    return Meta(extra_json_schema={"default": value})


class ClientConfigModel(Model):
    """How to reach the cluster's API server."""

    url: Annotated[str, doc("The https URL of the API server.")]
    ca_bundle: Annotated[str, doc("The CA certificates to verify it with.", format="byte")] | None = None


class ClusterTaintModel(Model):
    """Repels placements that do not tolerate it."""

    key: Annotated[str, Meta(max_length=316, pattern=QUALIFIED_NAME), doc("The key of the taint.")]
    effect: Annotated[
        str,
        doc("The effect on placements that do not tolerate it.", enum=["NoSelect", "PreferNoSelect", "NoSelectIfNew"]),
    ]
    value: Annotated[str, Meta(max_length=1024), doc("The value of the taint.")] = ""
    time_added: Annotated[Time, doc("When it was added; set by the server.", nullable=True)] | None = None


class ManagedClusterSpecModel(Model):
    """The desired state of the cluster on the hub."""

    managed_cluster_client_configs: Annotated[
        list[ClientConfigModel], doc("How to reach the API server of the cluster.")
    ] = field(default_factory=list)
    hub_accepts_client: Annotated[bool, doc("Whether an administrator accepted the cluster.")] | None = None
    lease_duration_seconds: Annotated[Int32, doc("How often the agent renews its lease.")] = 60
    taints: Annotated[list[ClusterTaintModel], doc("Taints that repel placements.")] = field(default_factory=list)


class VersionModel(Model):
    """The versions that the cluster runs."""

    kubernetes: Annotated[str, doc("The Kubernetes version.")] = ""


class ClaimModel(Model):
    """A property that the cluster reports about itself."""

    name: Annotated[str, Meta(min_length=1, max_length=253), doc("The name of the claim.")] = ""
    value: Annotated[str, Meta(min_length=1, max_length=1024), doc("The value of the claim.")] = ""


_NamespaceName = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


class ManagedNamespaceModel(Model):
    """A namespace that a cluster set requires on the cluster."""

    cluster_set: Annotated[str, doc("The name of the set.")]
    name: Annotated[_NamespaceName, doc("The namespace.")]
    conditions: Conditions = field(default_factory=list)


class ManagedClusterStatusModel(Model):
    """The observed state of the cluster."""

    conditions: Conditions = field(default_factory=list)
    capacity: Annotated[dict[str, Quantity], doc("The total resources of all nodes.")] = field(default_factory=dict)
    allocatable: Annotated[dict[str, Quantity], doc("The resources that are available to pods.")] = field(
        default_factory=dict
    )
    version: VersionModel = field(default_factory=VersionModel)
    cluster_claims: Annotated[list[ClaimModel], doc("Properties that the cluster reports about itself.")] = field(
        default_factory=list
    )
    managed_namespaces: Annotated[
        list[ManagedNamespaceModel], keyed("clusterSet", "name"), doc("Namespaces that its sets require.")
    ] = field(default_factory=list)


class ManagedClusterModel(Model):
    """A cluster that is registered with the hub. The hub namespace of the same name belongs to it."""

    spec: ManagedClusterSpecModel = field(default_factory=ManagedClusterSpecModel)
    status: ManagedClusterStatusModel | None = None


class SetSelectorModel(Model):
    """Which clusters are members of the set."""

    schema_extra = {"required": ["selectorType"]}

    selector_type: Annotated[
        Literal["ExclusiveClusterSetLabel", "LabelSelector"],
        doc("Whether members are selected by the exclusive cluster set label or by a label selector."),
    ] = "ExclusiveClusterSetLabel"
    label_selector: Annotated[LabelSelector, doc("For the type LabelSelector; empty matches every cluster.")] | None = (
        None
    )


class NamespaceModel(Model):
    """A namespace required on every member."""

    name: Annotated[_NamespaceName, doc("The name of the namespace.")]


_DEFAULT_SELECTOR = {"selectorType": "ExclusiveClusterSetLabel"}


class ManagedClusterSetSpecModel(Model):
    """The members of the set."""

    cluster_selector: Annotated[SetSelectorModel, _default(_DEFAULT_SELECTOR)] = field(default_factory=SetSelectorModel)
    managed_namespaces: Annotated[list[NamespaceModel], keyed("name"), doc("Namespaces required on every member.")] = (
        field(default_factory=list)
    )


class ConditionsModel(Model):
    """The observed state."""

    conditions: Annotated[list[ConditionModel], doc("The state of the object, by aspect.")] = field(
        default_factory=list
    )


class ManagedClusterSetModel(Model):
    """A set of clusters, which can be bound to namespaces."""

    spec: Annotated[ManagedClusterSetSpecModel, _default({"clusterSelector": _DEFAULT_SELECTOR})] = field(
        default_factory=ManagedClusterSetSpecModel
    )
    status: ConditionsModel | None = None


class BindingSpecModel(Model):
    """The set to bind."""

    cluster_set: Annotated[str, Meta(min_length=1), doc("The set; the binding has the same name.")] = ""


class ManagedClusterSetBindingModel(Model):
    """Allows the placements of a namespace to select clusters from a set."""

    spec: BindingSpecModel = field(default_factory=BindingSpecModel)
    status: ConditionsModel | None = None


def _set_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    selector = ((document.get("spec") or {}).get("clusterSelector") or {}).get("labelSelector")
    yield from label_selector_faults(selector, "spec.clusterSelector.labelSelector")


MANAGED_CLUSTER = model_kind(
    MANAGED_CLUSTERS,
    ManagedClusterModel,
    short_names=("mcl", "mcls"),
    columns=(
        Column(
            "Hub Accepted", "spec.hubAcceptsClient", type="boolean", description="Whether the cluster was accepted."
        ),
        Column(
            "Managed Cluster URLs", "spec.managedClusterClientConfigs[*].url", description="The URLs of the API server."
        ),
        condition_column("Joined", "ManagedClusterJoined", "status", "Whether the agent has joined."),
        condition_column(
            "Available", "ManagedClusterConditionAvailable", "status", "Whether the cluster is available."
        ),
        AGE,
    ),
)
MANAGED_CLUSTER_SET = model_kind(
    MANAGED_CLUSTER_SETS,
    ManagedClusterSetModel,
    short_names=("mclset", "mclsets"),
    columns=(
        condition_column("Empty", "ClusterSetEmpty", "status", "Whether the set has no members."),
        AGE,
    ),
    faults=_set_faults,
)
MANAGED_CLUSTER_SET_BINDING = model_kind(
    MANAGED_CLUSTER_SET_BINDINGS,
    ManagedClusterSetBindingModel,
    short_names=("mclsetbinding", "mclsetbindings"),
    columns=(
        condition_column("Bound", "Bound", "status", "Whether the set exists."),
        AGE,
    ),
)

KINDS = (MANAGED_CLUSTER, MANAGED_CLUSTER_SET, MANAGED_CLUSTER_SET_BINDING)
