"""The `Resource` of each kind of this system, in its storage version."""

from __future__ import annotations

from wharfinger.api.registry import Resource

OCM = "cluster.open-cluster-management.io"
MANAGED_CLUSTERS = Resource(OCM, "v1", "managedclusters", "ManagedCluster", namespaced=False)
MANAGED_CLUSTER_SETS = Resource(OCM, "v1beta2", "managedclustersets", "ManagedClusterSet", namespaced=False)
MANAGED_CLUSTER_SET_BINDINGS = Resource(OCM, "v1beta2", "managedclustersetbindings", "ManagedClusterSetBinding")
PLACEMENTS = Resource(OCM, "v1beta1", "placements", "Placement")
PLACEMENT_DECISIONS = Resource(OCM, "v1beta1", "placementdecisions", "PlacementDecision")
ADDON_PLACEMENT_SCORES = Resource(OCM, "v1alpha1", "addonplacementscores", "AddOnPlacementScore")
RESOURCES = (
    MANAGED_CLUSTERS,
    MANAGED_CLUSTER_SETS,
    MANAGED_CLUSTER_SET_BINDINGS,
    PLACEMENTS,
    PLACEMENT_DECISIONS,
    ADDON_PLACEMENT_SCORES,
)
"""All kinds of this system."""
