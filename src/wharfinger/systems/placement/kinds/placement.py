"""Placement, PlacementDecision and AddOnPlacementScore: the request for clusters, the selection, and third-party
scores.

Placement is served as v1beta1, and as v1alpha1 with the field names of the design document (`buildIn`, `name`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.registry import Column, Document, Kind
from wharfinger.api.schema.models import (
    QUALIFIED_NAME,
    Conditions,
    Int32,
    Int64,
    Model,
    Time,
    defaulter,
    doc,
    keyed,
    kind_schema,
    model_kind,
    validator,
)
from wharfinger.api.schema.tree import RULES
from wharfinger.api.selectors import LabelSelector, SelectorExpression
from wharfinger.api.times import LONGEST_DURATION, BadTime, parse_duration
from wharfinger.systems.placement.kinds.names import ADDON_PLACEMENT_SCORES, OCM, PLACEMENT_DECISIONS, PLACEMENTS
from wharfinger.systems.placement.rules.extras import parse_extras

V1ALPHA1 = f"{OCM}/v1alpha1"
WRITTEN = "wharfinger.dev/v1alpha1-lists"
"""Annotation of a Placement: lists of its spec as they were written in v1alpha1, by path."""

# For a real API server; here, `_placement_faults` has a better message.
_COUNTABLE: Any = {
    RULES: [{"rule": "duration(self) <= duration('2562047h47m16s')", "message": f"must be at most {LONGEST_DURATION}"}]
}


class ClaimSelectorModel(Model):
    """Selects clusters by their claims."""

    match_expressions: Annotated[
        list[SelectorExpression], doc("Requirements on claims, ANDed, with the rules of label selectors.")
    ] = field(default_factory=list)


class CelSelectorModel(Model):
    """Selects clusters by CEL expressions."""

    cel_expressions: Annotated[
        list[str], doc("Expressions over `managedCluster`, ANDed; each must be true for the cluster to match.")
    ] = field(default_factory=list)


class ClusterSelectorModel(Model):
    """Labels, claims and CEL expressions, ANDed; an empty selector matches every cluster."""

    label_selector: Annotated[LabelSelector, doc("By labels.")] | None = None
    claim_selector: ClaimSelectorModel | None = None
    cel_selector: CelSelectorModel | None = None


class PredicateModel(Model):
    """A set of requirements on clusters."""

    required_cluster_selector: ClusterSelectorModel | None = None


class AddOnScoreModel(Model):
    """Where to find a third-party score."""

    resource_name: Annotated[str, doc("The AddOnPlacementScore in each cluster's namespace.")]
    score_name: Annotated[str, doc("The score within it.")]


class ScoreCoordinateModel(Model):
    """Identifies a score: a built-in prioritizer, or a third-party score."""

    schema_extra = {"required": ["type"]}

    type: Annotated[str, doc("BuiltIn or AddOn.", enum=["BuiltIn", "AddOn"])] = "BuiltIn"
    built_in: Annotated[
        str, doc("Balance, Steady, ResourceAllocatableCPU or ResourceAllocatableMemory; for the type BuiltIn.")
    ] = ""
    add_on: Annotated[AddOnScoreModel, doc("For the type AddOn.")] | None = None


_Weight = Annotated[
    Int32, Meta(ge=-10, le=10), doc("The weight of the score. 0 disables it; a negative weight prefers low scores.")
]


_Mode = Annotated[str, doc("Additive: in addition to Balance and Steady with weight 1. Exact: only these.")]


class PrioritizerModel(Model):
    """A score and its weight."""

    score_coordinate: ScoreCoordinateModel
    weight: _Weight = 1


class PrioritizerPolicyModel(Model):
    """How clusters are ranked."""

    mode: _Mode = "Additive"
    configurations: Annotated[list[PrioritizerModel], doc("The prioritizers.")] = field(default_factory=list)


class OldScoreCoordinateModel(Model):
    """Identifies a score, in the terms of the design document."""

    type: Annotated[str, doc("BuildIn or AddOn.", enum=["BuildIn", "AddOn", "BuiltIn", ""])] = "BuildIn"
    build_in: Annotated[str, doc("The built-in prioritizer; overrides `name`.")] = ""
    add_on: Annotated[AddOnScoreModel, doc("For the type AddOn.")] | None = None


class OldPrioritizerModel(Model):
    """A score and its weight."""

    name: Annotated[str, doc("The built-in prioritizer, if scoreCoordinate names none.")] = ""
    score_coordinate: OldScoreCoordinateModel | None = None
    weight: _Weight = 1


class OldPrioritizerPolicyModel(Model):
    """How clusters are ranked."""

    mode: _Mode = "Additive"
    configurations: Annotated[list[OldPrioritizerModel], doc("The prioritizers.")] = field(default_factory=list)


class TolerationModel(Model):
    """Tolerates matching taints."""

    key: Annotated[
        str,
        Meta(max_length=316, pattern=QUALIFIED_NAME),
        doc("The taint's key; empty with Exists tolerates every key."),
    ] = ""
    operator: Annotated[str, doc("Equal or Exists.")] = "Equal"
    value: Annotated[str, Meta(max_length=1024), doc("The taint's value, for Equal.")] = ""
    effect: (
        Annotated[
            str, doc("The effect tolerated. Defaults to any.", enum=["NoSelect", "PreferNoSelect", "NoSelectIfNew"])
        ]
        | None
    ) = None
    toleration_seconds: (
        Annotated[Int64, doc("How long the taint is tolerated after it was added. Defaults to forever.")] | None
    ) = None


_TOPOLOGY_KEY = (  # the same names, without the parentheses
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
)


class SpreadConstraintModel(Model):
    """How evenly the selected clusters are spread over a topology."""

    topology_key: Annotated[
        str, Meta(max_length=316, pattern=_TOPOLOGY_KEY), doc("The label or claim whose values are the domains.")
    ]
    topology_key_type: Annotated[str, doc("Whether the key is a label or a claim.", enum=["Label", "Claim"])]
    max_skew: Annotated[
        Int32, Meta(ge=1), doc("The maximum difference between a domain and the one with the fewest clusters.")
    ] = 1
    when_unsatisfiable: Annotated[
        Literal["DoNotSchedule", "ScheduleAnyway"], doc("Whether clusters that violate the constraint can be selected.")
    ] = "ScheduleAnyway"


class SpreadPolicyModel(Model):
    """The topologies to spread the selected clusters over."""

    spread_constraints: Annotated[list[SpreadConstraintModel], Meta(max_length=8), doc("The spread constraints.")] = (
        field(default_factory=list)
    )


class GroupSelectorModel(Model):
    """Labels and claims, ANDed."""

    label_selector: Annotated[LabelSelector, doc("By labels.")] | None = None
    claim_selector: ClaimSelectorModel | None = None


class DecisionGroupModel(Model):
    """A named group of selected clusters."""

    group_name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9][-A-Za-z0-9_.]{0,61}[a-zA-Z0-9]$"), doc("Its name.")]
    group_cluster_selector: Annotated[GroupSelectorModel, doc("Which of the selected clusters belong to the group.")]


class GroupStrategyModel(Model):
    """How the selected clusters are divided into groups."""

    decision_groups: Annotated[list[DecisionGroupModel], doc("Named groups, filled in order.")] = field(
        default_factory=list
    )
    clusters_per_decision_group: Annotated[
        int | str,
        Meta(extra_json_schema={"pattern": r"^((100|[1-9][0-9]{0,1})%|[1-9][0-9]*)$"}),
        doc("The size of a group: a number, or a percentage of all selected clusters."),
    ] = "100%"


class DecisionStrategyModel(Model):
    """How the decision is structured."""

    group_strategy: GroupStrategyModel = field(default_factory=GroupStrategyModel)


class CommonSpecModel(Model):
    """What the specs of all versions have in common."""

    cluster_sets: Annotated[
        list[str], doc("The cluster sets to select from. Defaults to all sets bound to the namespace.")
    ] = field(default_factory=list)
    number_of_clusters: (
        Annotated[Int32, Meta(ge=0), doc("The number of clusters to select. Defaults to all that match.")] | None
    ) = None
    predicates: Annotated[list[PredicateModel], doc("Requirements, ORed. If empty, every cluster matches.")] = field(
        default_factory=list
    )
    tolerations: Annotated[list[TolerationModel], doc("Taints that are tolerated.")] = field(default_factory=list)
    spread_policy: SpreadPolicyModel = field(default_factory=SpreadPolicyModel)
    decision_strategy: DecisionStrategyModel = field(default_factory=DecisionStrategyModel)
    sort_by: Annotated[Literal["ClusterName", "Score"], doc("The order of clusters within decisions.")] = "ClusterName"
    score_rate_limit: Annotated[
        str,
        Meta(pattern=r"^[0-9]+[hms]$"),
        doc("The minimum interval between writes that change only scores.", **_COUNTABLE),
    ] = "1m"


class PlacementSpecModel(CommonSpecModel):
    """Which clusters to select."""

    prioritizer_policy: PrioritizerPolicyModel = field(default_factory=PrioritizerPolicyModel)


class OldPlacementSpecModel(CommonSpecModel):
    """Which clusters to select."""

    prioritizer_policy: OldPrioritizerPolicyModel = field(default_factory=OldPrioritizerPolicyModel)


class DecisionGroupStatusModel(Model):
    """One group of the decision."""

    decision_group_index: Annotated[Int32, doc("The index of the group, from 0.")] | None = None
    decision_group_name: Annotated[str, doc("The name of the group, if any.")] = ""
    decisions: Annotated[list[str], doc("The PlacementDecisions of the group.")] = field(default_factory=list)
    cluster_count: Annotated[Int32, doc("The number of clusters in the group.")] = 0


class PlacementStatusModel(Model):
    """The observed state of the placement."""

    number_of_selected_clusters: Annotated[Int32, doc("The number of selected clusters.")] | None = None
    decision_groups: Annotated[list[DecisionGroupStatusModel], doc("The decision groups.")] = field(
        default_factory=list
    )
    conditions: Conditions = field(default_factory=list)
    last_score_update_time: Annotated[Time, doc("When scores were last written into decisions.")] | None = None


class PlacementModel(Model):
    """Selects clusters from the sets bound to its namespace."""

    spec: PlacementSpecModel
    status: PlacementStatusModel | None = None


class OldPlacementModel(Model):
    """Selects clusters from the sets bound to its namespace."""

    spec: OldPlacementSpecModel
    status: PlacementStatusModel | None = None


class ClusterDecisionModel(Model):
    """A selected cluster."""

    cluster_name: Annotated[str, doc("The name of the cluster.")]
    reason: Annotated[str, doc("Why the cluster was selected: Feasible, Score, Spread or MinimumGain.")]
    score: Annotated[Int64, doc("The total score of the cluster.")] | None = None


class PlacementDecisionStatusModel(Model):
    """Part of a decision."""

    decisions: Annotated[list[ClusterDecisionModel], doc("The selected clusters, at most 100 per PlacementDecision.")]


class PlacementDecisionModel(Model):
    """Part of the decision of a Placement."""

    status: PlacementDecisionStatusModel | None = None


class ScoreItemModel(Model):
    """A named score of the cluster."""

    name: Annotated[str, doc("The name of the score.")]
    value: Annotated[Int32, Meta(ge=-100, le=100), doc("The score of the cluster.")] = 0


class AddOnPlacementScoreStatusModel(Model):
    """The scores of one cluster."""

    scores: Annotated[list[ScoreItemModel], keyed("name"), doc("The scores.")] = field(default_factory=list)
    valid_until: (
        Annotated[Time, doc("The time after which the scores count as 0. If unset, they never expire.")] | None
    ) = None
    conditions: Conditions = field(default_factory=list)


class AddOnPlacementScoreModel(Model):
    """Third-party scores of one cluster, in the namespace of that cluster."""

    status: AddOnPlacementScoreStatusModel | None = None


def _placement_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    metadata = document.get("metadata") or {}
    name = metadata.get("name") or ""
    # The name becomes a label value on the PlacementDecisions, so it must fit.
    if old is None and len(name) > 63:
        yield invalid("metadata.name", name, "must be no more than 63 characters")
    yield from parse_extras(metadata.get("annotations") or {}).faults
    limit = (document.get("spec") or {}).get("scoreRateLimit")
    if isinstance(limit, str):
        try:
            parse_duration(limit)
        except BadTime:
            yield invalid("spec.scoreRateLimit", limit, f"must be a duration of at most {LONGEST_DURATION}")


_defaults = {"v1beta1": defaulter(PlacementModel), "v1alpha1": defaulter(OldPlacementModel)}
_validators = {
    "v1beta1": validator(PlacementModel, _placement_faults),
    "v1alpha1": validator(OldPlacementModel, _placement_faults),
}


def _version_of(document: Document) -> str:
    return "v1alpha1" if document.get("apiVersion") == V1ALPHA1 else "v1beta1"


def _default_placement(document: Document) -> None:
    _defaults[_version_of(document)](document)


def _validate_placement(document: Document, old: Document | None) -> list[FieldError]:
    return _validators[_version_of(document)](document, old)


def convert_placement(document: Document, version: str) -> Document:
    """Converts a Placement between versions; only field names of prioritizers differ.

    v1alpha1 has several spellings of one prioritizer, and items of lists get defaults. Lists that would be read back
    differently than they were written are kept in an annotation, which v1alpha1 does not show."""
    if _version_of(document) == version:
        return document
    converted = copy.deepcopy(document)
    if version == "v1alpha1":
        written = _written_lists(converted)
        _rename(converted, version)
        return _as_written(converted, written)
    _drop_written(converted)
    _rename(converted, version)
    if differing := _differing_lists(document, converted):
        metadata = converted["metadata"]
        text = msgspec.json.encode(differing).decode()
        metadata["annotations"] = {**(metadata.get("annotations") or {}), WRITTEN: text}
    return converted


def _rename(document: Document, version: str) -> None:
    document["apiVersion"] = f"{OCM}/{version}"
    # Conversion runs before validation, so it must tolerate malformed documents.
    spec = document.get("spec")
    policy = spec.get("prioritizerPolicy") if isinstance(spec, dict) else None
    configurations = policy.get("configurations") if isinstance(policy, dict) else None
    for configuration in configurations if isinstance(configurations, list) else ():
        if isinstance(configuration, dict) and isinstance(configuration.get("scoreCoordinate"), dict | None):
            (_to_old if version == "v1alpha1" else _to_new)(configuration)


def _lists(value: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """The lists of objects in a spec by path."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        here = f"{path}.{name}" if path else name
        if isinstance(inner, list) and any(isinstance(item, dict) for item in inner):
            yield here, inner
        yield from _lists(inner, here)


def _differing_lists(old: Document, new: Document) -> dict[str, list[Any]]:
    """Lists of a v1alpha1 document that would read differently once it is stored."""
    if not isinstance(old.get("spec"), dict) or not isinstance(new.get("metadata"), dict):
        return {}
    shown = copy.deepcopy(new)
    try:
        _default_placement(shown)
        _rename(shown, "v1alpha1")
    except (TypeError, ValueError, AttributeError):
        return {}  # malformed: refused by validation
    read = dict(_lists(shown["spec"]))
    return {path: written for path, written in _lists(old["spec"]) if read.get(path) != written}


def _written_lists(document: Document) -> dict[str, list[Any]]:
    """The lists that the annotation of a stored document keeps; removes the annotation."""
    text = _drop_written(document)
    try:
        return msgspec.json.decode(text, type=dict[str, list[Any]]) if text else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _drop_written(document: Document) -> str:
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict) or WRITTEN not in annotations:
        return ""
    text = annotations.pop(WRITTEN)
    if not annotations:
        del document["metadata"]["annotations"]
    return text if isinstance(text, str) else ""


def _as_written(shown: Document, written: dict[str, list[Any]]) -> Document:
    """A v1alpha1 document with its lists as they were written, if they still mean what is stored."""
    if not written:
        return shown
    candidate = copy.deepcopy(shown)
    for path, items in written.items():
        *parents, name = path.split(".")
        owner: Any = candidate.get("spec")
        for parent in parents:
            owner = owner.get(parent) if isinstance(owner, dict) else None
        if not isinstance(owner, dict):
            return shown
        owner[name] = items
    return candidate if _meaning(candidate) == _meaning(shown) else shown


def _meaning(document: Document) -> Any:
    """The spec of a v1alpha1 document as it is stored; None if it is malformed."""
    stored = copy.deepcopy(document)
    try:
        _rename(stored, "v1beta1")
        _default_placement(stored)
    except (TypeError, ValueError, AttributeError):
        return None
    return stored.get("spec")


def _to_new(configuration: dict[str, Any]) -> None:
    name = configuration.pop("name", "")
    coordinate = configuration.get("scoreCoordinate")
    if coordinate is None:
        if not name:
            return
        coordinate = configuration["scoreCoordinate"] = {}
    kind = coordinate.get("type") or "BuildIn"
    coordinate["type"] = "BuiltIn" if kind == "BuildIn" else kind
    built_in = coordinate.pop("buildIn", "") or (name if coordinate["type"] == "BuiltIn" else "")
    if built_in:
        coordinate["builtIn"] = built_in


def _to_old(configuration: dict[str, Any]) -> None:
    coordinate = configuration.get("scoreCoordinate")
    if coordinate is None:
        return
    coordinate["type"] = "BuildIn" if coordinate.get("type", "BuiltIn") == "BuiltIn" else coordinate["type"]
    built_in = coordinate.pop("builtIn", "")
    if built_in:
        coordinate["buildIn"] = built_in
        configuration["name"] = built_in


def _same_words(document: Document, version: str) -> Document:
    return (
        document if document.get("apiVersion") == f"{OCM}/{version}" else {**document, "apiVersion": f"{OCM}/{version}"}
    )


def _name_scores(document: Document) -> None:
    """Accepts `prioritizer` for `name`, as in one example of the design document."""
    status = document.get("status")
    scores = status.get("scores") if isinstance(status, dict) else None
    for score in scores if isinstance(scores, list) else ():
        if isinstance(score, dict) and "name" not in score and isinstance(score.get("prioritizer"), str):
            score["name"] = score.pop("prioritizer")


def condition_cell(kind: str, part: str) -> Any:
    """A printer column for one field of a condition."""

    def cell(document: Document, now: float) -> Any:
        conditions = (document.get("status") or {}).get("conditions") or ()
        return next((condition.get(part, "") for condition in conditions if condition.get("type") == kind), None)

    return cell


def condition_column(name: str, kind: str, part: str, description: str = "") -> Column:
    path = f'status.conditions[?(@.type=="{kind}")].{part}'
    return Column(name, path, description=description, cell=condition_cell(kind, part))


PLACEMENT = Kind(
    OCM,
    PLACEMENTS.kind,
    PLACEMENTS.plural,
    versions=("v1beta1", "v1alpha1"),
    storage_version="v1beta1",
    status=True,
    columns=(
        condition_column(
            "Succeeded", "PlacementSatisfied", "status", "Whether the requested number of clusters was selected."
        ),
        condition_column("Reason", "PlacementSatisfied", "reason", "The reason of the PlacementSatisfied condition."),
        Column(
            "SelectedClusters",
            "status.numberOfSelectedClusters",
            type="integer",
            description="The number of selected clusters.",
        ),
    ),
    default=_default_placement,
    validate=_validate_placement,
    convert=convert_placement,
    schema=lambda version: kind_schema(OldPlacementModel if version == "v1alpha1" else PlacementModel),
    ours=True,
)
PLACEMENT_DECISION = model_kind(
    PLACEMENT_DECISIONS,
    PlacementDecisionModel,
    versions=("v1beta1", "v1alpha1"),
    storage_version="v1beta1",
    convert=_same_words,
)
ADDON_PLACEMENT_SCORE = model_kind(
    ADDON_PLACEMENT_SCORES,
    AddOnPlacementScoreModel,
    fill=_name_scores,
)

KINDS = (PLACEMENT, PLACEMENT_DECISION, ADDON_PLACEMENT_SCORE)
