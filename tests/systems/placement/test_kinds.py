"""The kinds: what their schemas refuse, fill in and convert."""

from __future__ import annotations

from typing import Any

import pytest
from tests.systems.placement.hub import Hub, add_on, binding, cluster, cluster_set, exact, placement, score

from wharfinger.api.errors import ApiError, BadRequest, Forbidden, Invalid
from wharfinger.api.kinds import registry
from wharfinger.api.registry import Document, Resource
from wharfinger.api.schema.crds import crd
from wharfinger.api.times import format_time, parse_time
from wharfinger.controllers.registry import factories
from wharfinger.systems.placement.admission.addresses import is_https_url
from wharfinger.systems.placement.install import PROCESS
from wharfinger.systems.placement.kinds.names import ADDON_PLACEMENT_SCORES, MANAGED_CLUSTERS, OCM, PLACEMENTS
from wharfinger.systems.placement.kinds.placement import WRITTEN, convert_placement
from wharfinger.systems.placement.rules.pipeline import decide

OLD_PLACEMENTS = Resource(OCM, "v1alpha1", "placements", "Placement")


def with_name(document: Document, name: str) -> Document:
    return {**document, "metadata": {**document["metadata"], "name": name}}


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (placement(-1), "spec.numberOfClusters"),
        (with_name(placement(), "x" * 64), "metadata.name"),
        (placement(prioritizerPolicy=exact(add_on(11))), "spec.prioritizerPolicy.configurations[0].weight"),
        (placement(prioritizerPolicy=exact(add_on(-11))), "spec.prioritizerPolicy.configurations[0].weight"),
        (placement(sortBy="Random"), "spec.sortBy"),
        (placement(scoreRateLimit="1d"), "spec.scoreRateLimit"),
        (placement(scoreRateLimit="99999999999999999999h"), "spec.scoreRateLimit"),
        (placement(scoreRateLimit="2562048h"), "spec.scoreRateLimit"),
        (placement(prioritizerPolicy=exact({"scoreCoordinate": {"type": "Foo"}})), "scoreCoordinate.type"),
        (placement(tolerations=[{"key": "a", "effect": "NoSchedule"}]), "spec.tolerations[0].effect"),
        (placement(spreadPolicy={"spreadConstraints": [{"topologyKey": "a"}]}), "topologyKeyType"),
        (
            placement(
                spreadPolicy={"spreadConstraints": [{"topologyKey": "a", "topologyKeyType": "Label", "maxSkew": 0}]}
            ),
            "maxSkew",
        ),
        (
            placement(spreadPolicy={"spreadConstraints": [{"topologyKey": "a", "topologyKeyType": "Label"}] * 9}),
            "spec.spreadPolicy.spreadConstraints",
        ),
        (
            placement(decisionStrategy={"groupStrategy": {"decisionGroups": [{"groupName": "x"}]}}),
            "decisionGroups[0]",
        ),
        (placement(annotations={"wharfinger.dev/minimum-gain": "-1"}), "wharfinger.dev/minimum-gain"),
        (placement(annotations={"wharfinger.dev/replicas": "{}"}), "wharfinger.dev/replicas"),
        (placement(annotations={"wharfinger.dev/tie-break": "Coin"}), "wharfinger.dev/tie-break"),
        (cluster("c", taints=[{"key": "a b", "effect": "NoSelect"}]), "spec.taints[0].key"),
        (cluster("c", taints=[{"key": "a", "effect": "NoSchedule"}]), "spec.taints[0].effect"),
        (cluster_set("s", selectorType="Legacy"), "spec.clusterSelector.selectorType"),
        (
            cluster_set("s", selectorType="LabelSelector", labelSelector={"matchLabels": {"bad key!": "x"}}),
            "spec.clusterSelector.labelSelector",
        ),
        (score("c1", a=101), "status.scores[0].value"),
        (score("c1", a=-101), "status.scores[0].value"),
    ],
)
def test_refusals_name_the_field(hub: Hub, document: Document, path: str) -> None:
    with pytest.raises(Invalid) as refusal:
        hub.apply(document)
    assert path in refusal.value.message


@pytest.mark.parametrize("kind", ["Foo", "Builtin", "addon", "BuildIn", ""])
def test_an_unknown_type_of_score_is_refused_with_those_that_exist(hub: Hub, kind: str) -> None:
    coordinate = {"type": kind, "builtIn": "Steady"}
    with pytest.raises(Invalid) as refusal:
        hub.apply(placement(prioritizerPolicy=exact({"scoreCoordinate": coordinate})))
    assert f'Unsupported value: "{kind}": supported values: "BuiltIn", "AddOn"' in refusal.value.message


def test_a_stored_placement_with_an_unknown_type_of_score_says_so() -> None:
    """Schemas of other projects, or older ones, may let it through."""
    wrong = placement(prioritizerPolicy=exact({"scoreCoordinate": {"type": "Builtin", "builtIn": "Steady"}}))
    _, _, result = decide(wrong, [cluster("c1")])
    assert result.misconfigured
    assert result.message == "incorrect score type: Builtin, want BuiltIn or AddOn"


def test_the_longest_rate_limit_is_that_of_go(hub: Hub) -> None:
    hub.apply(placement(1, scoreRateLimit="2562047h"), score("c1", a=5))
    hub.score("c1", a=6)
    assert hub.selected() == ["c1"]


def test_a_cluster_has_the_name_of_a_namespace_and_secure_addresses(hub: Hub) -> None:
    document = with_name(cluster("c"), "a.b")
    document["spec"]["managedClusterClientConfigs"] = [{"url": "http://x"}, {"url": "https://x"}, {"url": ""}]
    with pytest.raises(BadRequest) as refusal:
        hub.apply(document)
    assert refusal.value.message.splitlines() == [
        "metadata.name format is not correct: must not contain dots",
        'url "" is invalid in client configs',
        'url "http://x" is invalid in client configs',
    ]


@pytest.mark.parametrize(
    "address",
    [
        "https://x",
        "HTTPS://x:6443/p?q#f",
        "https://",
        "https:x",
        "https:/p",
        "https://u:p@x",
        "https://[::1]:6443",
        "https://é",
    ],
)
def test_addresses_with_the_scheme_https(address: str) -> None:
    assert is_https_url(address)


@pytest.mark.parametrize(
    "address",
    ["", "x", "http://x", "https", "://x", "https://x:port", "https://x y", "https://x/%zz", "https://x#%", "https://[::1",
     "https://x/\t", "https://x\\y", "https://%41", "https://u{@x"],
)  # fmt: skip
def test_other_addresses(address: str) -> None:
    assert not is_https_url(address)


def test_defaults(hub: Hub) -> None:
    hub.apply(placement(predicates=[{}]), cluster("new"))
    spec = hub.placement()["spec"]
    assert (spec["sortBy"], spec["scoreRateLimit"]) == ("ClusterName", "1m")
    found = hub.get(MANAGED_CLUSTERS, "new")
    assert found["spec"]["leaseDurationSeconds"] == 60
    assert found["metadata"]["labels"]["cluster.open-cluster-management.io/clusterset"] == "default"


def test_a_cluster_may_leave_its_spec_out(hub: Hub) -> None:
    bare = {"apiVersion": f"{OCM}/v1", "kind": "ManagedCluster", "metadata": {"name": "bare"}}
    hub.apply(bare, placement())
    assert hub.get(MANAGED_CLUSTERS, "bare")["spec"] == {"hubAcceptsClient": False, "leaseDurationSeconds": 60}
    assert "bare" in hub.selected()


def test_an_explicit_weight_of_zero_stays(hub: Hub) -> None:
    hub.apply(placement(prioritizerPolicy=exact(add_on(0))))
    assert hub.placement()["spec"]["prioritizerPolicy"]["configurations"][0]["weight"] == 0


OLD: Document = {
    "apiVersion": f"{OCM}/v1alpha1",
    "kind": "Placement",
    "metadata": {"name": "old", "namespace": "ns1"},
    "spec": {
        "numberOfClusters": 1,
        "prioritizerPolicy": {
            "mode": "Exact",
            "configurations": [
                {"scoreCoordinate": {"type": "BuildIn", "buildIn": "Steady"}, "weight": 3},
                {"name": "Balance", "weight": 2},
                {"name": "Balance", "scoreCoordinate": {"buildIn": "ResourceAllocatableCPU"}},
                add_on(),
            ],
        },
    },
}


def test_the_design_documents_version_is_stored_in_todays(hub: Hub) -> None:
    hub.apply(OLD)
    stored = hub.get(PLACEMENTS, "old", "ns1")
    coordinates = [c["scoreCoordinate"] for c in stored["spec"]["prioritizerPolicy"]["configurations"]]
    assert [(c["type"], c.get("builtIn", "")) for c in coordinates] == [
        ("BuiltIn", "Steady"),
        ("BuiltIn", "Balance"),
        ("BuiltIn", "ResourceAllocatableCPU"),
        ("AddOn", ""),
    ]
    assert len(hub.selected("old")) == 1
    shown = hub.run(hub.client.get(OLD_PLACEMENTS, "old", "ns1"))
    written = OLD["spec"]["prioritizerPolicy"]["configurations"]
    assert shown["spec"]["prioritizerPolicy"]["configurations"] == written
    assert WRITTEN not in shown["metadata"].get("annotations", {})


def test_a_change_in_todays_version_is_seen_in_the_design_documents(hub: Hub) -> None:
    hub.apply(OLD)
    stored = hub.get(PLACEMENTS, "old", "ns1")
    stored["spec"]["prioritizerPolicy"]["configurations"][1]["weight"] = 7
    hub.apply(stored)
    shown = hub.run(hub.client.get(OLD_PLACEMENTS, "old", "ns1"))
    configuration = shown["spec"]["prioritizerPolicy"]["configurations"][1]
    assert (configuration["name"], configuration["weight"]) == ("Balance", 7)


def test_conversion_there_and_back_keeps_everything() -> None:
    new = convert_placement(OLD, "v1beta1")
    assert convert_placement(convert_placement(new, "v1alpha1"), "v1beta1") == new


def test_a_score_without_a_value_is_zero_and_prioritizer_means_name() -> None:
    kind = registry().of_plural(OCM, "addonplacementscores")
    assert kind is not None and kind.default is not None
    document: Document = {"status": {"scores": [{"name": "a"}, {"prioritizer": "b", "value": 3}]}}
    kind.default(document)
    assert document["status"]["scores"] == [{"name": "a", "value": 0}, {"name": "b", "value": 3}]


@pytest.mark.parametrize("plural", ["placements", "placementdecisions", "managedclusters", "addonplacementscores"])
def test_crds_serve_all_versions_with_a_status(plural: str) -> None:
    kind = registry().of_plural(OCM, plural)
    assert kind is not None
    versions = crd(kind)["spec"]["versions"]
    assert [version["name"] for version in versions] == list(kind.versions)
    assert all(version["subresources"] == {"status": {}} for version in versions)
    assert sum(version["storage"] for version in versions) == 1


def test_columns_show_the_satisfied_condition(hub: Hub) -> None:
    hub.apply(placement(2))
    kind = registry().of_plural(OCM, "placements")
    assert kind is not None
    cells = [column.cell(hub.placement(), 0.0) for column in kind.columns if column.cell is not None]
    assert cells == ["True", "AllDecisionsScheduled"]


# Admission


def taints(hub: Hub, *wanted: Document) -> None:
    hub.patch(MANAGED_CLUSTERS, "c1", {"spec": {"taints": list(wanted)}})


def test_the_server_owns_the_times_of_taints(hub: Hub) -> None:
    given = {"key": "a", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"}
    hub.apply(cluster("c9", taints=[given]))
    (added,) = hub.get(MANAGED_CLUSTERS, "c9")["spec"]["taints"]
    assert added["timeAdded"] == "2026-01-01T00:00:00Z"
    taints(hub, {"key": "a", "effect": "NoSelect"})
    (stored,) = hub.get(MANAGED_CLUSTERS, "c1")["spec"]["taints"]
    assert stored["timeAdded"]
    hub.advance(60)
    taints(hub, stored, {"key": "b", "effect": "NoSelectIfNew"})
    first, second = hub.get(MANAGED_CLUSTERS, "c1")["spec"]["taints"]
    assert first["timeAdded"] < second["timeAdded"]
    taints(hub, {"key": "a", "effect": "NoSelect", "value": "changed"}, second)
    assert hub.get(MANAGED_CLUSTERS, "c1")["spec"]["taints"][0]["timeAdded"] > first["timeAdded"]


@pytest.mark.parametrize(
    "wanted",
    [
        {"key": "a", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"},
        {"key": "a", "effect": "NoSelect"},
        {"key": "new", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"},
    ],
    ids=["changed", "left out", "given for a new taint"],
)
def test_times_of_taints_are_not_the_clients(hub: Hub, wanted: Document) -> None:
    taints(hub, {"key": "a", "effect": "NoSelect"})
    with pytest.raises(BadRequest) as refusal:
        taints(hub, wanted, {"key": "x/b", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"})
    assert refusal.value.message == f'It is not allowed to set TimeAdded of Taint "{wanted["key"]},x/b".'


def test_the_time_of_a_taint_may_be_written_in_any_zone(hub: Hub) -> None:
    taints(hub, {"key": "a", "effect": "NoSelect"})
    (stored,) = hub.get(MANAGED_CLUSTERS, "c1")["spec"]["taints"]
    elsewhere = format_time(parse_time(stored["timeAdded"]) + 3600).replace("Z", "+01:00")
    taints(hub, {**stored, "timeAdded": elsewhere})


def test_the_first_of_two_taints_with_one_key_is_the_old_one(hub: Hub) -> None:
    hub.apply(cluster("c9", taints=[{"key": "a", "effect": "NoSelect"}, {"key": "a", "effect": "NoSelectIfNew"}]))
    first, second = hub.get(MANAGED_CLUSTERS, "c9")["spec"]["taints"]
    with pytest.raises(BadRequest):
        hub.patch(MANAGED_CLUSTERS, "c9", {"spec": {"taints": [second, first]}})


def test_a_binding_is_named_after_its_set(hub: Hub) -> None:
    with pytest.raises(BadRequest) as refusal:
        hub.apply(with_name(binding(), "other"))
    assert refusal.value.message == (
        "The ManagedClusterSetBinding must have the same name as the target ManagedClusterSet"
    )


@pytest.mark.parametrize(
    ("document", "verb", "subresource", "name"),
    [
        (cluster("n1", {"cluster.open-cluster-management.io/clusterset": "s"}), "update", "accept", "n1"),
        (cluster("n1", {"cluster.open-cluster-management.io/clusterset": "s"}), "create", "join", "s"),
        (binding("ns2", "s"), "create", "bind", "s"),
    ],
)
def test_accepting_joining_and_binding_are_rights_of_their_own(
    document: Document, verb: str, subresource: str, name: str
) -> None:
    asked: list[tuple[Any, ...]] = []

    def refuse(question: Any) -> bool:
        asked.append((question.verb, question.group, question.subresource, question.name))
        return question.subresource != subresource

    with Hub(authorize=refuse) as hub:
        with pytest.raises(Forbidden) as refusal:
            hub.apply(document)
        plural = "managedclusters" if subresource == "accept" else "managedclustersets"
        assert refusal.value.message.startswith(f'{plural}/{subresource}.{OCM} "{name}" is forbidden: user "')
        group = "register.open-cluster-management.io" if subresource == "accept" else OCM
        assert asked[-1] == (verb, group, subresource, name)


def test_moving_a_cluster_takes_the_right_for_both_sets() -> None:
    asked: list[str] = []

    def note(question: Any) -> bool:
        asked.append(question.name)
        return True

    label = "cluster.open-cluster-management.io/clusterset"
    with Hub(authorize=note) as hub:
        hub.apply(cluster("n1", {label: "old"}))
        asked.clear()
        hub.patch(MANAGED_CLUSTERS, "n1", {"metadata": {"labels": {label: "new"}}})
        assert asked == ["old", "new"]
        asked.clear()
        hub.patch(MANAGED_CLUSTERS, "n1", {"metadata": {"labels": {"other": "x"}}})
        assert asked == []


def test_refusals_are_api_errors(hub: Hub) -> None:
    with pytest.raises(ApiError):
        hub.apply({**placement(), "spec": "x"})


def test_all_placement_controllers_are_in_the_list() -> None:
    assert set(PROCESS.controllers) <= set(factories())


def test_the_design_documents_example_of_a_score_is_taken_as_it_stands(hub: Hub) -> None:
    example: Document = {
        "apiVersion": f"{OCM}/v1alpha1",
        "kind": "AddOnPlacementScore",
        "metadata": {"name": "default", "namespace": "c1"},
        "status": {
            "conditions": [
                {
                    "lastTransitionTime": "2021-10-28T08:31:39Z",
                    "message": "AddOnPlacementScore updated successfully",
                    "reason": "AddOnPlacementScoreUpdated",
                    "status": "True",
                    "type": "AddOnPlacementScoreUpdated",
                }
            ],
            "validUntil": "2026-10-29T18:31:39Z",
            "scores": [{"name": "cpuratio", "value": 88}, {"prioritizer": "memratio", "value": 77}],
        },
    }
    hub.apply(example)
    stored = hub.get(ADDON_PLACEMENT_SCORES, "default", "c1")["status"]["scores"]
    assert stored == [{"name": "cpuratio", "value": 88}, {"name": "memratio", "value": 77}]
