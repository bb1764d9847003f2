"""Plugin arguments: defaults, and errors with their paths."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.engine import BadArguments, known_plugins, read_args

RATIO = "RequestedToCapacityRatio"


@pytest.mark.parametrize(
    ("plugin", "args", "faults"),
    [
        ("InterPodAffinity", {"hardPodAffinityWeight": 101}, ["hardPodAffinityWeight"]),
        ("InterPodAffinity", {"hardPodAffinityWeight": "x"}, ["hardPodAffinityWeight"]),
        (
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            ["minCandidateNodesPercentage", "minCandidateNodesAbsolute"],
        ),
        ("DefaultPreemption", {"minCandidateNodesPercentage": 101}, ["minCandidateNodesPercentage"]),
        ("NodeResourcesFit", {"scoringStrategy": {"type": "Fullest"}}, ["scoringStrategy.type"]),
        (
            "NodeResourcesFit",
            {"ignoredResourceGroups": ["example.com/gpu"], "ignoredResources": ["-"]},
            ["ignoredResources[0]", "ignoredResourceGroups[0]"],
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"resources": [{"name": "cpu", "weight": 101}]}},
            ["scoringStrategy.resources[0].weight"],
        ),
        ("NodeResourcesFit", {"scoringStrategy": {"type": RATIO}}, ["scoringStrategy.requestedToCapacityRatio"]),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"requestedToCapacityRatio": {"shape": []}}},
            ["scoringStrategy.requestedToCapacityRatio"],
        ),
        (
            "NodeResourcesFit",
            {
                "scoringStrategy": {
                    "type": RATIO,
                    "requestedToCapacityRatio": {
                        "shape": [{"utilization": 50, "score": 11}, {"utilization": 50, "score": 0}]
                    },
                }
            },
            [
                "scoringStrategy.requestedToCapacityRatio.shape[1].utilization",
                "scoringStrategy.requestedToCapacityRatio.shape[0].score",
            ],
        ),
        (
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "cpu", "weight": 2}, {"name": "cpu"}]},
            ["resources[0].weight", "resources[1].name"],
        ),
        (
            "PodTopologySpread",
            {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]},
            ["defaultingType"],
        ),
        (
            "PodTopologySpread",
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Never", "labelSelector": {}},
                ],
            },
            [
                "defaultConstraints[0].maxSkew",
                "defaultConstraints[0].topologyKey",
                "defaultConstraints[0].whenUnsatisfiable",
                "defaultConstraints[0].labelSelector",
            ],
        ),
        (
            "NodeAffinity",
            {
                "addedAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]
                    }
                }
            },
            [
                "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
                ".matchExpressions[0].operator"
            ],
        ),
        ("ImageLocality", {"size": 1}, ["ImageLocality"]),
        ("VolumeBinding", {"bindTimeoutSeconds": -1}, ["bindTimeoutSeconds"]),
        ("VolumeBinding", {"shape": [{"utilization": 0, "score": 11}]}, ["shape[0].score"]),
        (
            "VolumeBinding",
            {"shape": [{"utilization": 50, "score": 1}, {"utilization": 50, "score": 0}]},
            ["shape[1].utilization"],
        ),
    ],
)
def test_wrong_arguments_are_refused_with_their_paths(plugin: str, args: dict[str, Any], faults: list[str]) -> None:
    with pytest.raises(BadArguments) as refused:
        read_args(known_plugins()[plugin], args, "args")
    assert [error.path for error in refused.value.errors] == [f"args.{path}" for path in faults]


def test_a_shape_for_the_score_of_storage_is_new_in_1_37() -> None:
    with pytest.raises(BadArguments) as refused:
        read_args(
            known_plugins()["VolumeBinding"], {"shape": [{"utilization": 0, "score": 0}]}, "", KubernetesVersion.V1_36
        )
    assert "turn on the feature gate StorageCapacityScoring" in str(refused.value)


@pytest.mark.parametrize("plugin", list(known_plugins()))
def test_every_plugin_has_usable_defaults(plugin: str) -> None:
    assert read_args(known_plugins()[plugin], {}).faults(REFERENCE) == []


def test_the_default_order_and_weights_are_upstreams() -> None:
    from wharfinger.engine import default_profile

    profile = default_profile()
    ours = {name for name, each in known_plugins().items() if each.ours}
    assert default_profile(kubernetes=KubernetesVersion.V1_36).points["filter"][:2] == ("NodeUnschedulable", "NodeName")
    assert [name for name in profile.points["filter"] if name not in ours] == [
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
    ]
    assert {name: profile.weights[name] for name in profile.points["score"] if name not in ours} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
