"""KubeSchedulerConfiguration: an administrator's file loads; what we cannot honour is said by path."""

from typing import Any

import pytest
import yaml

from wharfinger.scheduler.configuration import (
    BadSchedulerConfiguration,
    PluginInfo,
    SchedulerConfiguration,
    load_scheduler_configuration,
)
from wharfinger.scheduler.profiles import load as load_all

PLUGINS = {
    "PrioritySort": PluginInfo(frozenset({"queueSort"})),
    "NodeName": PluginInfo(frozenset({"filter"})),
    "TaintToleration": PluginInfo(frozenset({"filter", "preScore", "score"}), weight=3),
    "NodeResourcesFit": PluginInfo(frozenset({"preFilter", "filter", "score"}), weight=1),
    "resourcepolicy": PluginInfo(frozenset({"filter", "score"}), weight=100, ours=True, aliases=("ResourcePolicy",)),
    "Extra": PluginInfo(frozenset({"score"}), enabled=False),
}


def load(text: str) -> SchedulerConfiguration:
    return load_scheduler_configuration(yaml.safe_load(text) or {}, PLUGINS)


def test_an_empty_document_means_the_defaults() -> None:
    loaded = load("")
    assert [profile.scheduler_name for profile in loaded.profiles] == ["wharfinger"]
    assert loaded.profiles[0].points["filter"] == ("NodeName", "TaintToleration", "NodeResourcesFit", "resourcepolicy")
    assert loaded.profiles[0].weights["TaintToleration"] == 3
    assert loaded.profiles[0].weights["resourcepolicy"] == 100


def test_the_design_document_s_sample_loads() -> None:
    loaded = load(
        """
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        leaderElection: {leaderElect: false}
        profiles:
        - schedulerName: default-scheduler
          plugins:
            multiPoint:
              enabled:
              - name: resourcepolicy
        """
    )
    assert loaded.leader_election.leader_elect is False
    assert loaded.profiles[0].weights["resourcepolicy"] == 100
    assert loaded.profiles[0].points["filter"].count("resourcepolicy") == 1


def test_plugins_at_one_point_override_those_enabled_everywhere() -> None:
    loaded = load(
        """
        profiles:
        - schedulerName: a
          plugins:
            filter: {disabled: [{name: NodeName}]}
            score:
              enabled: [{name: Extra, weight: 7}, {name: NodeResourcesFit, weight: 5}]
              disabled: [{name: ResourcePolicy}]
        - schedulerName: b
          plugins: {multiPoint: {disabled: [{name: "*"}], enabled: [{name: PrioritySort}, {name: TaintToleration}]}}
        """
    )
    a, b = loaded.profiles
    assert a.points["filter"] == ("TaintToleration", "NodeResourcesFit", "resourcepolicy")
    assert a.points["score"] == ("NodeResourcesFit", "TaintToleration", "Extra")
    assert (a.weights["NodeResourcesFit"], a.weights["Extra"]) == (5, 7)
    assert b.points["filter"] == ("TaintToleration",)
    assert b.weights == {"PrioritySort": 1, "TaintToleration": 1}


def test_what_has_no_effect_is_warned_about() -> None:
    loaded = load("{parallelism: 16, percentageOfNodesToScore: 50}")
    assert len(loaded.warnings) == 2
    assert "every node is always considered" in loaded.warnings[1]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{extenders: [{urlPrefix: http://x}]}", "extenders"),
        ("{profils: []}", "profils"),
        ("{apiVersion: kubescheduler.config.k8s.io/v1beta3}", "apiVersion"),
        ("{profiles: [{schedulerName: a, plugins: {filters: {}}}]}", "profiles[0].plugins.filters"),
        ("{profiles: [{plugins: {filter: {enabled: [{name: Nope}]}}}]}", "profiles[0].plugins.filter.enabled[0].name"),
        ("{profiles: [{schedulerName: a}, {schedulerName: a}]}", "profiles[1].schedulerName"),
        ("{profiles: [{}, {schedulerName: a}]}", "profiles[0].schedulerName"),
        ("{profiles: [{pluginConfig: [{name: Nope}]}]}", "profiles[0].pluginConfig[0].name"),
        ("{profiles: [{pluginConfig: [{name: NodeName}, {name: NodeName}]}]}", "profiles[0].pluginConfig[1]"),
        ("{parallelism: 0}", "parallelism"),
        ("{percentageOfNodesToScore: 101}", "percentageOfNodesToScore"),
        ("{profiles: [{percentageOfNodesToScore: -1}]}", "profiles[0].percentageOfNodesToScore"),
        ("{profiles: [{plugins: {score: {enabled: [{name: NodeName}]}}}]}", "profiles[0].plugins.score.enabled"),
        ("{leaderElection: {leaseDuration: 5s}}", "leaderElection.leaseDuration"),
        ("{leaderElection: {leaseDuration: soon}}", "leaderElection.leaseDuration"),
        ("{leaderElection: {elect: true}}", "leaderElection.elect"),
        ("{podInitialBackoffSeconds: 0}", "podInitialBackoffSeconds"),
        ("{podInitialBackoffSeconds: 5, podMaxBackoffSeconds: 2}", "podMaxBackoffSeconds"),
        ("{profiles: 3}", "profiles"),
    ],
)
def test_faults_are_named_by_path(text: str, path: str) -> None:
    with pytest.raises(BadSchedulerConfiguration) as caught:
        load(text)
    paths: list[Any] = [error.path for error in caught.value.errors]
    assert path in paths


def test_faults_of_arguments_are_named_as_upstream_names_them() -> None:
    arguments = {
        "PodTopologySpread": {
            "defaultingType": "System",
            "defaultConstraints": [{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Never"}],
        },
        "InterPodAffinity": {"hardPodAffinityWeight": 200},
        "NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 2}]},
    }
    configured = [{"name": name, "args": args} for name, args in arguments.items()]
    with pytest.raises(BadSchedulerConfiguration) as refused:
        load_all({"profiles": [{"schedulerName": "a", "pluginConfig": configured}], "parallelism": -1})
    assert {(error.path, error.message) for error in refused.value.errors} >= {
        ("parallelism", "Invalid value: -1: should be an integer value greater than zero"),
        (
            "profiles[0].pluginConfig[0].args.defaultConstraints[0].maxSkew",
            "Invalid value: 0: not in valid range (0, inf)",
        ),
        (
            "profiles[0].pluginConfig[1].args.hardPodAffinityWeight",
            "Invalid value: 200: not in valid range [0, 100]",
        ),
        ("profiles[0].pluginConfig[2].args.resources[0].weight", "Invalid value: 2: must be 1"),
    }
