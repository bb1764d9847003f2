"""Views of the multi-cluster kinds: clusters and their sets, placements, decisions and scores."""

from __future__ import annotations

from msgspec import field

from wharfinger.api.selectors import LabelSelector, SelectorExpression
from wharfinger.api.views.base import View
from wharfinger.api.views.meta import ConditionsStatus, ObjectView
from wharfinger.api.views.nodes import Taint
from wharfinger.api.views.pods import Quantities

PREFIX = "cluster.open-cluster-management.io/"
CLUSTER_SET_LABEL = PREFIX + "clusterset"
PLACEMENT_LABEL = PREFIX + "placement"
GROUP_INDEX_LABEL = PREFIX + "decision-group-index"
GROUP_NAME_LABEL = PREFIX + "decision-group-name"
DEFAULT_LEASE_SECONDS = 60
DISABLE_ANNOTATION = PREFIX + "experimental-scheduling-disable"


def lease_seconds(asked: int) -> int:
    """How often a cluster renews its lease; what is not positive means the default."""
    return asked if asked > 0 else DEFAULT_LEASE_SECONDS


class ClusterClaim(View, frozen=True):
    name: str = ""
    value: str = ""


class ManagedClusterVersion(View, frozen=True):
    kubernetes: str = ""


class ManagedClusterSpec(View, frozen=True):
    hub_accepts_client: bool = False
    lease_duration_seconds: int = 60
    taints: tuple[Taint, ...] = ()


class ManagedClusterStatus(ConditionsStatus, frozen=True):
    capacity: Quantities = field(default_factory=dict)
    allocatable: Quantities = field(default_factory=dict)
    version: ManagedClusterVersion = field(default_factory=ManagedClusterVersion)
    cluster_claims: tuple[ClusterClaim, ...] = ()


class ManagedCluster(ObjectView, frozen=True):
    spec: ManagedClusterSpec = field(default_factory=ManagedClusterSpec)
    status: ManagedClusterStatus = field(default_factory=ManagedClusterStatus)

    @property
    def claims(self) -> dict[str, str]:
        """Claims by name; the last of duplicates wins."""
        return {claim.name: claim.value for claim in self.status.cluster_claims}


class SetSelector(View, frozen=True):
    selector_type: str = "ExclusiveClusterSetLabel"
    label_selector: LabelSelector | None = None  # None matches nothing, empty matches everything


class ManagedClusterSetSpec(View, frozen=True):
    cluster_selector: SetSelector = field(default_factory=SetSelector)


class ManagedClusterSet(ObjectView, frozen=True):
    spec: ManagedClusterSetSpec = field(default_factory=ManagedClusterSetSpec)
    status: ConditionsStatus = field(default_factory=ConditionsStatus)


class ManagedClusterSetBindingSpec(View, frozen=True):
    cluster_set: str = ""


class ManagedClusterSetBinding(ObjectView, frozen=True):
    spec: ManagedClusterSetBindingSpec = field(default_factory=ManagedClusterSetBindingSpec)
    status: ConditionsStatus = field(default_factory=ConditionsStatus)


class ClaimSelector(View, frozen=True):
    match_expressions: tuple[SelectorExpression, ...] = ()


class CelSelector(View, frozen=True):
    cel_expressions: tuple[str, ...] = ()


class ClusterSelector(View, frozen=True):
    label_selector: LabelSelector = field(default_factory=LabelSelector)
    claim_selector: ClaimSelector = field(default_factory=ClaimSelector)
    cel_selector: CelSelector = field(default_factory=CelSelector)


class ClusterPredicate(View, frozen=True):
    required_cluster_selector: ClusterSelector = field(default_factory=ClusterSelector)


class AddOnScore(View, frozen=True):
    resource_name: str = ""
    score_name: str = ""


class ScoreCoordinate(View, frozen=True):
    type: str = "BuiltIn"
    built_in: str = ""
    add_on: AddOnScore | None = None


class PrioritizerConfig(View, frozen=True):
    score_coordinate: ScoreCoordinate | None = None
    weight: int = 1


class PrioritizerPolicy(View, frozen=True):
    mode: str = "Additive"
    configurations: tuple[PrioritizerConfig, ...] = ()


class ClusterToleration(View, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SpreadConstraint(View, frozen=True):
    topology_key: str = ""
    topology_key_type: str = "Label"
    max_skew: int = 1
    when_unsatisfiable: str = "ScheduleAnyway"


class SpreadPolicy(View, frozen=True):
    spread_constraints: tuple[SpreadConstraint, ...] = ()


class DecisionGroup(View, frozen=True):
    group_name: str = ""
    group_cluster_selector: ClusterSelector = field(default_factory=ClusterSelector)


class GroupStrategy(View, frozen=True):
    clusters_per_decision_group: int | str = "100%"
    decision_groups: tuple[DecisionGroup, ...] = ()


class DecisionStrategy(View, frozen=True):
    group_strategy: GroupStrategy = field(default_factory=GroupStrategy)


class PlacementSpec(View, frozen=True):
    cluster_sets: tuple[str, ...] = ()
    number_of_clusters: int | None = None
    predicates: tuple[ClusterPredicate, ...] = ()
    prioritizer_policy: PrioritizerPolicy = field(default_factory=PrioritizerPolicy)
    tolerations: tuple[ClusterToleration, ...] = ()
    spread_policy: SpreadPolicy = field(default_factory=SpreadPolicy)
    decision_strategy: DecisionStrategy = field(default_factory=DecisionStrategy)
    sort_by: str = "ClusterName"
    score_rate_limit: str = "1m"


class DecisionGroupStatus(View, frozen=True):
    decision_group_index: int = 0
    decision_group_name: str = ""
    decisions: tuple[str, ...] = ()
    cluster_count: int = 0


class PlacementStatus(ConditionsStatus, frozen=True):
    number_of_selected_clusters: int = 0
    decision_groups: tuple[DecisionGroupStatus, ...] = ()
    last_score_update_time: str = ""


class Placement(ObjectView, frozen=True):
    spec: PlacementSpec = field(default_factory=PlacementSpec)
    status: PlacementStatus = field(default_factory=PlacementStatus)


class ClusterDecision(View, frozen=True):
    cluster_name: str = ""
    reason: str = ""
    score: int | None = None


class PlacementDecisionStatus(View, frozen=True):
    decisions: tuple[ClusterDecision, ...] = ()


class PlacementDecision(ObjectView, frozen=True):
    status: PlacementDecisionStatus = field(default_factory=PlacementDecisionStatus)

    @property
    def placement(self) -> str:
        """The name of the Placement that it belongs to; empty without the label."""
        return self.metadata.labels.get(PLACEMENT_LABEL, "")


class ScoreItem(View, frozen=True):
    name: str = ""
    value: int = 0  # Go clients omit zero values


class AddOnPlacementScoreStatus(ConditionsStatus, frozen=True):
    scores: tuple[ScoreItem, ...] = ()
    valid_until: str = ""


class AddOnPlacementScore(ObjectView, frozen=True):
    status: AddOnPlacementScoreStatus = field(default_factory=AddOnPlacementScoreStatus)
