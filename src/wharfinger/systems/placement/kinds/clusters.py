"""ManagedCluster, ManagedClusterSet and ManagedClusterSetBinding: the clusters there are, and who may choose them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, field

from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.names import dns_label, qualified_name
from wharfinger.api.registry import Column, Document, Kind
from wharfinger.api.schema.models import (
    Conditions,
    Int32,
    Model,
    Quantity,
    Time,
    defaulter,
    doc,
    keyed,
    kind_schema,
    validator,
)
from wharfinger.api.selectors import LabelSelector
from wharfinger.api.validation.selectors import each, label_selector_faults
from wharfinger.systems.placement.kinds.names import (
    MANAGED_CLUSTER_SET_BINDINGS,
    MANAGED_CLUSTER_SETS,
    MANAGED_CLUSTERS,
    OCM,
)
from wharfinger.systems.placement.kinds.placement import condition_column, with_spec


class ClientConfigModel(Model):
    """How the cluster's API server is reached."""

    url: Annotated[str, doc("Its address, starting with https.")]
    ca_bundle: Annotated[str, doc("The certificates it is verified by.", format="byte")] | None = None


class ClusterTaintModel(Model):
    """Keeps placements off that do not tolerate it."""

    key: Annotated[str, Meta(max_length=316), doc("What it is about.")]
    effect: Annotated[
        Literal["NoSelect", "PreferNoSelect", "NoSelectIfNew"],
        doc("What it does to placements that do not tolerate it."),
    ]
    value: Annotated[str, Meta(max_length=1024), doc("A value to go with the key.")] = ""
    time_added: Annotated[Time, doc("When it was added; set by the server.", nullable=True)] | None = None


class ManagedClusterSpecModel(Model):
    """What the hub wants of the cluster."""

    managed_cluster_client_configs: Annotated[list[ClientConfigModel], doc("Ways to reach it.")] = field(
        default_factory=list
    )
    hub_accepts_client: Annotated[bool, doc("Whether an administrator let the cluster in.")] = False
    lease_duration_seconds: Annotated[Int32, doc("How often its agent renews the lease.")] = 60
    taints: Annotated[list[ClusterTaintModel], doc("Its taints.")] = field(default_factory=list)


class VersionModel(Model):
    """What the cluster runs."""

    kubernetes: Annotated[str, doc("The version of Kubernetes.")] = ""


class ClaimModel(Model):
    """A fact that the cluster states of itself."""

    name: Annotated[str, Meta(min_length=1, max_length=253), doc("What it is about.")]
    value: Annotated[str, Meta(min_length=1, max_length=1024), doc("The fact.")]


class ManagedNamespaceModel(Model):
    """A namespace that a cluster set asks the cluster to keep."""

    cluster_set: Annotated[str, doc("The set.")]
    name: Annotated[str, doc("The namespace.")]
    conditions: Conditions = field(default_factory=list)


class ManagedClusterStatusModel(Model):
    """What the cluster is."""

    conditions: Conditions = field(default_factory=list)
    capacity: Annotated[dict[str, Quantity], doc("What all its nodes have.")] = field(default_factory=dict)
    allocatable: Annotated[dict[str, Quantity], doc("What pods may use of it.")] = field(default_factory=dict)
    version: VersionModel = field(default_factory=VersionModel)
    cluster_claims: Annotated[list[ClaimModel], doc("Facts it states of itself.")] = field(default_factory=list)
    managed_namespaces: Annotated[
        list[ManagedNamespaceModel], keyed("clusterSet", "name"), doc("Namespaces kept for its sets.")
    ] = field(default_factory=list)


class ManagedClusterModel(Model):
    """A cluster that the hub knows; the hub's namespace of the same name belongs to it."""

    spec: ManagedClusterSpecModel = field(default_factory=ManagedClusterSpecModel)
    status: ManagedClusterStatusModel | None = None


class SetSelectorModel(Model):
    """Which clusters are members."""

    selector_type: Annotated[
        Literal["ExclusiveClusterSetLabel", "LabelSelector"],
        doc("By the label that names the set, of which a cluster has one; or by any labels."),
    ] = "ExclusiveClusterSetLabel"
    label_selector: Annotated[LabelSelector, doc("For the type LabelSelector; empty matches every cluster.")] | None = (
        None
    )


class NamespaceModel(Model):
    """A namespace to keep on every member."""

    name: Annotated[
        str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), doc("Its name.")
    ]


class ManagedClusterSetSpecModel(Model):
    """Who belongs to the set."""

    cluster_selector: SetSelectorModel = field(default_factory=SetSelectorModel)
    managed_namespaces: Annotated[list[NamespaceModel], keyed("name"), doc("Namespaces to keep on members.")] = field(
        default_factory=list
    )


class ConditionsModel(Model):
    """What the controller found."""

    conditions: Conditions = field(default_factory=list)


class ManagedClusterSetModel(Model):
    """A set of clusters, which namespaces are bound to as a whole."""

    spec: ManagedClusterSetSpecModel = field(default_factory=ManagedClusterSetSpecModel)
    status: ConditionsModel | None = None


class BindingSpecModel(Model):
    """Which set."""

    cluster_set: Annotated[str, Meta(min_length=1), doc("The set; the binding has the same name.", immutable=True)]


class ManagedClusterSetBindingModel(Model):
    """Lets the placements of a namespace choose from a set."""

    spec: BindingSpecModel
    status: ConditionsModel | None = None


def _cluster_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    for index, config in each(spec, "managedClusterClientConfigs"):
        url = config.get("url", "")
        if not url.startswith("https://") or len(url) <= len("https://"):
            yield invalid(f"spec.managedClusterClientConfigs[{index}].url", url, "must be an https URL")
    for index, taint in each(spec, "taints"):
        for fault in qualified_name(taint.get("key", "")):
            yield invalid(f"spec.taints[{index}].key", taint.get("key", ""), fault)


def _set_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    selector = ((document.get("spec") or {}).get("clusterSelector") or {}).get("labelSelector")
    yield from label_selector_faults(selector, "spec.clusterSelector.labelSelector")


MANAGED_CLUSTER = Kind(
    OCM,
    MANAGED_CLUSTERS.kind,
    MANAGED_CLUSTERS.plural,
    versions=("v1",),
    namespaced=False,
    short_names=("mcl", "mcls"),
    status=True,
    name_faults=dns_label,  # the name is a namespace's too
    columns=(
        Column("Hub Accepted", "spec.hubAcceptsClient", type="boolean", description="Whether it was let in."),
        Column("Managed Cluster URLs", "spec.managedClusterClientConfigs[*].url", description="How it is reached."),
        condition_column("Joined", "ManagedClusterJoined", "status", "Whether its agent has joined."),
        condition_column("Available", "ManagedClusterConditionAvailable", "status", "Whether it is healthy."),
        Column("Age", "metadata.creationTimestamp", type="date"),
    ),
    default=with_spec(defaulter(ManagedClusterModel)),
    validate=validator(ManagedClusterModel, _cluster_faults),
    schema=lambda version: kind_schema(ManagedClusterModel),
    ours=True,
)
MANAGED_CLUSTER_SET = Kind(
    OCM,
    MANAGED_CLUSTER_SETS.kind,
    MANAGED_CLUSTER_SETS.plural,
    versions=("v1beta2",),
    namespaced=False,
    short_names=("mclset", "mclsets"),
    status=True,
    columns=(
        condition_column("Empty", "ClusterSetEmpty", "status", "Whether it has no member."),
        Column("Age", "metadata.creationTimestamp", type="date"),
    ),
    default=with_spec(defaulter(ManagedClusterSetModel)),
    validate=validator(ManagedClusterSetModel, _set_faults),
    schema=lambda version: kind_schema(ManagedClusterSetModel),
    ours=True,
)
MANAGED_CLUSTER_SET_BINDING = Kind(
    OCM,
    MANAGED_CLUSTER_SET_BINDINGS.kind,
    MANAGED_CLUSTER_SET_BINDINGS.plural,
    versions=("v1beta2",),
    short_names=("mclsetbinding", "mclsetbindings"),
    status=True,
    columns=(
        condition_column("Bound", "Bound", "status", "Whether the set exists."),
        Column("Age", "metadata.creationTimestamp", type="date"),
    ),
    default=defaulter(ManagedClusterSetBindingModel),
    validate=validator(ManagedClusterSetBindingModel),
    schema=lambda version: kind_schema(ManagedClusterSetBindingModel),
    ours=True,
)

KINDS = (MANAGED_CLUSTER, MANAGED_CLUSTER_SET, MANAGED_CLUSTER_SET_BINDING)
