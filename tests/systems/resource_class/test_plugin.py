"""Devices by class: which nodes fit, which devices are given, and what is left, through the engine."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from tests.systems.resource_class.device_objects import (
    GPU,
    Document,
    as_node,
    as_pod,
    expression,
    klass,
    machine,
    pod,
    resource,
)

from wharfinger.engine import Engine
from wharfinger.framework.status import Code
from wharfinger.scheduler import profiles
from wharfinger.systems.resource_class.plugin.ledger import MANY
from wharfinger.systems.resource_class.rules.assigning import Demand, assign
from wharfinger.systems.resource_class.rules.compute_resources import (
    RECORD,
    RECORD_FIELD,
    compute_resource_name,
    format_record,
)

ANY = klass("rc1")
PRECIOUS = klass("rc2", expression("kind", "In", "precious"))
CR1, CR2 = resource("cr1", 2), resource("cr2", 3, kind="precious")
CLASSIC = compute_resource_name(GPU, {})


class Cluster:
    """An engine with few words. `place` binds as the live scheduler does: the record comes back on the pod."""

    def __init__(self, *documents: Document) -> None:
        self.engine = Engine()
        self.apply(*documents)

    def apply(self, *documents: Document) -> None:
        for document in documents:
            if document["kind"] == "Node":
                self.engine.set_node(as_node(document))
            elif document["kind"] == "Pod":
                self.engine.set_pod(as_pod(document))
            else:
                self.engine.apply(document["kind"], document)

    def delete(self, document: Document) -> None:
        self.engine.apply(document["kind"], document, deleted=True)

    def place(self, document: Document) -> Any:
        """The record of the pod's only container, or None if it fits nowhere."""
        wanted = as_pod(document)
        decision = self.engine.schedule(wanted)
        if decision.node is None:
            return None
        status = self.engine.assume(wanted, decision.node)
        assert status.ok, status
        record = self.engine.annotations(wanted, decision.node).get(RECORD)
        bound = json.loads(json.dumps(document))
        bound["spec"]["nodeName"] = decision.node
        if record is not None:
            bound["metadata"].setdefault("annotations", {})[RECORD] = record
        self.engine.set_pod(as_pod(bound))
        return bound if record is None else by_name(record)

    def why(self, document: Document) -> str:
        decision = self.engine.schedule(as_pod(document))
        if decision.diagnosis is None:
            return decision.error or ""
        return decision.diagnosis.message

    def fits(self, document: Document) -> bool:
        return self.engine.schedule(as_pod(document)).node is not None


def by_name(record: str) -> dict[str, dict[str, int]]:
    given: dict[str, dict[str, int]] = {}
    for names in json.loads(record).values():
        for name, entries in names.items():
            given.setdefault(name, {}).update({each["computeResourceName"]: each["count"] for each in entries})
    return given


def held(node_record: dict[str, dict[str, int]], container: str = "c") -> dict[str, str]:
    """A record as an annotation."""
    entries = {
        name: [{"computeResourceName": resource, "count": count} for resource, count in counts.items()]
        for name, counts in node_record.items()
    }
    return {RECORD: json.dumps({container: entries})}


@pytest.fixture
def worked() -> Cluster:
    return Cluster(ANY, PRECIOUS, machine("n1", CR1, CR2))


def left(cluster: Cluster) -> dict[str, int]:
    """The largest request that still fits, for each name."""
    return {
        name: next((n - 1 for n in range(1, 12) if not cluster.fits(pod("probe", {name: n}))), 99)
        for name in ("rc1", "rc2", GPU)
    }


def test_the_worked_example(worked: Cluster) -> None:
    assert left(worked) == {"rc1": 5, "rc2": 3, GPU: 5}
    assert worked.place(pod("a", {"rc1": 2})) == {"rc1": {"cr1": 2}}
    assert left(worked) == {"rc1": 3, "rc2": 3, GPU: 3}
    assert worked.place(pod("b", {"rc2": 2})) == {"rc2": {"cr2": 2}}
    assert left(worked) == {"rc1": 1, "rc2": 1, GPU: 1}
    assert worked.place(pod("c", {GPU: 1})) == {GPU: {"cr2": 1}}
    assert left(worked) == {"rc1": 0, "rc2": 0, GPU: 0}


def test_a_record_that_a_pod_brings_along_is_honoured(worked: Cluster) -> None:
    assert worked.place(pod("a", {"rc1": 2}, annotations=held({"rc1": {"cr2": 2}}))) == {"rc1": {"cr2": 2}}
    assert left(worked) == {"rc1": 3, "rc2": 1, GPU: 3}
    assert not worked.fits(pod("b", {"rc2": 2}))


@pytest.mark.parametrize(
    ("devices", "record", "reason"),
    [
        ({"rc1": 2}, {"rc1": {"cr1": 1}}, "gives container c 1 of rc1, which asks for 2"),
        ({"rc1": 1}, {"rc1": {"cr1": 1}, "rc2": {"cr2": 1}}, "gives container c 1 of rc2, which asks for 0"),
        ({"rc2": 1}, {"rc2": {"cr1": 1}}, "ComputeResource cr1 of the pod's record doesn't match rc2"),
        ({"rc1": 1}, {"rc1": {"cr9": 1}}, "didn't have the ComputeResources of the pod's record"),
        ({"rc1": 3}, {"rc1": {"cr1": 3}}, "Insufficient cr1"),
    ],
)
def test_a_record_that_cannot_be_honoured_keeps_the_pod_pending(
    worked: Cluster, devices: dict[str, int], record: dict[str, dict[str, int]], reason: str
) -> None:
    wanted = as_pod(pod("a", devices, annotations=held(record)))
    diagnosis = worked.engine.schedule(wanted).diagnosis
    assert diagnosis is not None
    assert reason in diagnosis.message
    assert diagnosis.status("n1").code is Code.UNRESOLVABLE


def test_requests_that_fit_alone_may_not_fit_together() -> None:
    cluster = Cluster(ANY, PRECIOUS, machine("n1", CR2))
    assert cluster.why(pod("a", {"rc1": 1, "rc2": 3})) == (
        "0/1 nodes are available: 1 Insufficient devices for rc1 and rc2 together."
    )
    assert cluster.place(pod("b", {"rc1": 1, "rc2": 2})) == {"rc1": {"cr2": 1}, "rc2": {"cr2": 2}}


def test_a_request_may_be_split(worked: Cluster) -> None:
    assert worked.place(pod("a", {"rc1": 4})) == {"rc1": {"cr1": 2, "cr2": 2}}


def test_a_request_gives_way_where_another_has_no_choice(worked: Cluster) -> None:
    assert worked.place(pod("a", {"rc1": 2, "rc2": 3})) == {"rc1": {"cr1": 2}, "rc2": {"cr2": 3}}


def test_three_classes_that_overlap_are_assigned_jointly() -> None:
    cluster = Cluster(
        klass("ab", expression("t", "In", "a", "b")),
        klass("bc", expression("t", "In", "b", "c")),
        klass("ca", expression("t", "In", "c", "a")),
        machine("n1", resource("a", 2, t="a"), resource("b", 2, t="b"), resource("c", 2, t="c")),
    )
    record = cluster.place(pod("p", {"ab": 3, "bc": 2, "ca": 1}))
    totals = {name: sum(counts.get(name, 0) for counts in record.values()) for name in "abc"}
    assert totals == {"a": 2, "b": 2, "c": 2}
    assert not set(record["ab"]) - {"a", "b"} and not set(record["bc"]) - {"b", "c"}


def test_raw_requests_take_what_the_fewest_classes_claim() -> None:
    cluster = Cluster(ANY, PRECIOUS, machine("n1", resource("a", 1, kind="precious"), resource("z", 1)))
    assert cluster.place(pod("raw", {GPU: 1})) == {GPU: {"z": 1}}


def test_equal_claims_go_by_name() -> None:
    cluster = Cluster(ANY, machine("n1", resource("z", 1), resource("y", 1, p="1")))
    assert cluster.place(pod("a", {"rc1": 1})) == {"rc1": {"y": 1}}


def test_alias_and_name_mean_the_same(worked: Cluster) -> None:
    alias = "resourceclass.scheduling.sigs.x-k8s.io/rc2"
    assert worked.place(pod("a", {alias: 2})) == {alias: {"cr2": 2}}
    assert left(worked) == {"rc1": 3, "rc2": 1, GPU: 3}
    assert worked.why(pod("b", {alias: 2})) == (
        f"0/1 nodes are available: 1 Insufficient {alias} (devices in the cluster: 3 matching, 3 healthy, 1 free)."
    )


def test_init_containers_use_what_comes_into_use_later(worked: Cluster) -> None:
    worked.place(pod("a", {"rc1": 2}, init={"rc1": 3}))
    assert left(worked) == {"rc1": 2, "rc2": 2, GPU: 2}


def test_sidecars_hold_their_devices(worked: Cluster) -> None:
    document = pod("a", {"rc1": 2}, init={"rc1": 1})
    document["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    worked.place(document)
    assert left(worked)["rc1"] == 2


def test_old_nodes_with_classic_capacity() -> None:
    cluster = Cluster(
        klass("not-ecc", expression("ecc", "NotIn", "true")),
        klass("ecc", expression("ecc", "In", "true")),
        machine("old", classic=2),
    )
    assert cluster.fits(pod("raw", {GPU: 2}))
    assert not cluster.fits(pod("in", {"ecc": 1}))
    assert cluster.place(pod("notin", {"not-ecc": 1})) == {"not-ecc": {CLASSIC: 1}}
    assert cluster.why(pod("raw", {GPU: 2})) == f"0/1 nodes are available: 1 Insufficient {GPU}."
    assert cluster.place(pod("raw", {GPU: 1})) == {GPU: {CLASSIC: 1}}
    assert not cluster.fits(pod("more", {"not-ecc": 1}))


def test_classic_capacity_beside_compute_resources_is_not_counted() -> None:
    cluster = Cluster(ANY, machine("n1", resource("cr", 2), classic=2))
    assert cluster.fits(pod("two", {GPU: 2}))
    assert not cluster.fits(pod("three", {GPU: 3}))


def test_raw_names_that_nobody_classifies_are_the_stock_plugins_business() -> None:
    cluster = Cluster(machine("n1", classic=2))
    placed = cluster.place(pod("raw", {GPU: 2}))
    assert placed["spec"]["nodeName"] == "n1" and RECORD not in placed["metadata"].get("annotations", {})
    cluster.apply(ANY)  # from now on the pod without a record counts as holding them
    assert not cluster.fits(pod("more", {"rc1": 1}))
    cluster.apply(machine("n1", classic=3))
    assert cluster.fits(pod("more", {"rc1": 1}))


def test_a_raw_name_is_the_stock_plugins_business_again_when_nobody_publishes_it_any_more() -> None:
    asking = as_pod(pod("a", {GPU: 2}))
    cluster = Cluster(machine("old", classic=3))
    before = cluster.engine.explain(asking)
    cluster.apply(machine("new", CR1), ANY)
    assert "resourceclass" in cluster.engine.explain(asking).scores["old"]
    cluster.engine.remove_node("new")
    cluster.delete(ANY)
    assert cluster.engine.explain(asking) == before


def test_a_node_may_publish_in_an_object_of_its_own() -> None:
    bare = machine("n1")
    published = {
        "kind": "NodeComputeResources",
        "metadata": {"name": "n1"},
        "spec": {"computeResources": [CR1, CR2]},
    }
    cluster = Cluster(bare, ANY, PRECIOUS, published)
    assert left(cluster) == {"rc1": 5, "rc2": 3, GPU: 5}
    cluster.delete(published)
    assert left(cluster) == {"rc1": 0, "rc2": 0, GPU: 0}


def test_unhealthy_devices_are_no_capacity(worked: Cluster) -> None:
    worked.apply(machine("n1", resource("cr1", 2, healthy=1), CR2))
    assert left(worked) == {"rc1": 4, "rc2": 3, GPU: 4}
    worked.place(pod("a", {"rc2": 3}))
    worked.apply(machine("n1", resource("cr1", 2, healthy=1), resource("cr2", 3, healthy=1, kind="precious")))
    assert left(worked) == {"rc1": 1, "rc2": 0, GPU: 1}  # never below zero, and the others keep theirs


def test_a_class_that_changes_leaves_records_as_they_are(worked: Cluster) -> None:
    worked.place(pod("a", {"rc2": 2}))
    worked.apply(klass("rc2", expression("kind", "DoesNotExist")))
    assert left(worked) == {"rc1": 3, "rc2": 2, GPU: 3}
    worked.apply(klass("rc3", expression("kind", "Exists")))
    assert worked.fits(pod("b", {"rc3": 1})) and not worked.fits(pod("b", {"rc3": 2}))


def test_a_restart_counts_from_records_whatever_classes_mean_by_then(worked: Cluster) -> None:
    first = pod("a", {"rc1": 2}, node="n1", annotations=held({"rc1": {"cr2": 2}}))
    second = pod("b", {"gone": 1}, node="n1", annotations=held({"gone": {"cr1": 1}}))
    worked.apply(first, second, klass("rc1", expression("kind", "DoesNotExist")))
    before = left(worked)
    orders = [
        (second, first, PRECIOUS, klass("rc1", expression("kind", "DoesNotExist")), machine("n1", CR1, CR2)),
        (machine("n1", CR1, CR2), klass("rc1", expression("kind", "DoesNotExist")), first, PRECIOUS, second),
    ]
    assert before == {"rc1": 1, "rc2": 1, GPU: 2}
    assert [left(Cluster(*documents)) for documents in orders] == [before, before]


def test_a_record_of_what_the_node_no_longer_has_still_takes_devices(worked: Cluster) -> None:
    worked.apply(pod("a", {"rc1": 2}, node="n1", annotations=held({"rc1": {"old": 2}})))
    assert left(worked) == {"rc1": 3, "rc2": 3, GPU: 3}


def test_an_unknown_class_is_waited_for(worked: Cluster) -> None:
    assert worked.why(pod("a", {"gold": 1})) == '0/1 nodes are available: unknown class "gold".'
    worked.apply(klass("gold"))
    assert worked.fits(pod("a", {"gold": 1}))
    worked.delete(klass("gold"))
    assert "unknown class" in worked.why(pod("a", {"gold": 1}))


@pytest.mark.parametrize(
    ("name", "appears"),
    [
        ("gold", klass("gold")),
        ("resourceclass.scheduling.sigs.x-k8s.io/gold", klass("gold")),
        ("fpga.example/card", machine("n1", resource("card", 1, raw="fpga.example/card"))),
        (
            "fpga.example/card",
            {
                "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
                "kind": "NodeComputeResources",
                "metadata": {"name": "n1"},
                "spec": {"computeResources": [resource("card", 1, raw="fpga.example/card")]},
            },
        ),
    ],
)
def test_a_pod_asked_about_again_sees_what_its_names_mean_by_now(name: str, appears: Document) -> None:
    """The very same object, as the queue keeps it while nothing of the pod changes."""
    before = machine("n1", CR1) if appears["kind"] == "ResourceClass" else machine("n1")
    cluster = Cluster(before)
    waiting = as_pod(pod("a", {name: 1}))
    assert cluster.engine.schedule(waiting).node is None
    cluster.apply(appears)
    assert cluster.engine.schedule(waiting).node == "n1"
    cluster.delete(appears) if appears["kind"] != "Node" else cluster.apply(before)
    assert cluster.engine.schedule(waiting).node is None


def test_devices_of_the_cluster_are_no_nodes_business() -> None:
    cluster = Cluster(klass("remote", raw="net.example/disk", scope="Cluster"), machine("n1"))
    assert cluster.fits(pod("a", {"remote": 50}))
    assert cluster.fits(pod("b", {"resourceclass.scheduling.sigs.x-k8s.io/remote": 50}))


def test_groups_are_of_equal_value() -> None:
    cluster = Cluster(
        klass("pair", groupBy="nvlink", groupSize=2),
        machine("n1", resource("x", 3, nvlink="0"), resource("y", 1, nvlink="1"), resource("z", 1, nvlink="1", m="2")),
    )
    assert not cluster.fits(pod("a", {"pair": 3}))
    assert cluster.place(pod("a", {"pair": 2})) == {"pair": {"x": 2, "y": 1, "z": 1}}
    assert not cluster.fits(pod("b", {"pair": 1})) and cluster.fits(pod("b", {GPU: 1}))


def test_devices_without_the_grouping_property_form_no_group() -> None:
    cluster = Cluster(klass("pair", groupBy="nvlink", groupSize=2), machine("n1", resource("x", 4)))
    assert not cluster.fits(pod("a", {"pair": 1}))


def test_preemption_frees_the_devices_of_the_victim(worked: Cluster) -> None:
    worked.apply(
        pod("low", {"rc1": 2}, priority=1, node="n1", annotations=held({"rc1": {"cr2": 2}})),
        pod("other", {"rc1": 2}, priority=1, node="n1", annotations=held({"rc1": {"cr1": 2}})),
    )
    result = worked.engine.preempt(as_pod(pod("high", {"rc2": 3}, priority=9)))
    assert result.node == "n1"
    assert [victim.metadata.name for victim in result.victims] == ["low"]
    assert worked.engine.preempt(as_pod(pod("high", {"rc2": 4}, priority=9))).node is None


def test_a_pod_that_is_forgotten_gives_its_devices_back(worked: Cluster) -> None:
    wanted = as_pod(pod("a", {"rc1": 5}))
    worked.engine.assume(wanted, "n1")
    assert left(worked)["rc1"] == 0
    worked.engine.forget(wanted)
    assert left(worked)["rc1"] == 5


def test_devices_follow_a_node_that_goes_and_comes_back(worked: Cluster) -> None:
    worked.place(pod("a", {"rc1": 2}))
    worked.engine.remove_node("n1")
    worked.apply(machine("n0", CR1), machine("n1", CR1, CR2))
    assert not worked.fits(pod("b", {"rc1": 4}))
    assert worked.place(pod("b", {"rc1": 3})) == {"rc1": {"cr2": 3}}


def test_arrays_and_single_rows_agree_on_many_nodes() -> None:
    machines = [machine(f"n{i}", resource("a", i % 4, t="a"), resource("b", i % 3, t="b")) for i in range(200)]
    classes = [klass("a", expression("t", "In", "a")), klass("any")]
    cluster = Cluster(*classes, *machines)
    for wanted in ({"a": 2}, {"a": 2, "any": 2}, {"any": 5, GPU: 1}):
        explained = cluster.engine.explain(as_pod(pod("p", wanted)))
        for i in range(200):
            has = {"a": i % 4, "b": i % 3}
            expected = has["a"] >= wanted.get("a", 0) and sum(has.values()) >= sum(wanted.values())
            assert (f"n{i}" in explained.scores) is expected, (wanted, i)


def test_nodes_with_less_precious_devices_come_first() -> None:
    plain, precious = machine("plain", resource("p", 2)), machine("precious", resource("q", 4, kind="precious"))
    cluster = Cluster(ANY, PRECIOUS, plain, precious)
    for name in ("a", "b"):
        assert cluster.place(pod(name, {"rc1": 1})) == {"rc1": {"p": 1}}
    assert cluster.place(pod("c", {GPU: 1})) == {GPU: {"q": 1}}
    cluster.apply(klass("rc3", expression("kind", "DoesNotExist")), klass("rc4", expression("kind", "DoesNotExist")))
    cluster.engine.remove_pod("default", "a")
    assert cluster.place(pod("d", {"rc1": 1})) == {"rc1": {"q": 1}}  # now the plain ones are in demand


def test_scores_over_arrays_and_single_rows_agree() -> None:
    machines = [
        machine(f"n{i}", *(resource(f"{t}", (i * k) % 4, t=t) for k, t in enumerate("abc", 1))) for i in range(40)
    ]
    classes = [klass("ab", expression("t", "In", "a", "b")), klass("c", expression("t", "In", "c")), klass("any")]
    cluster = Cluster(*classes, *machines)
    for wanted in ({"any": 3}, {"ab": 1, "c": 2}, {GPU: 5}):
        shape = as_pod(pod("p", wanted))
        profile = cluster.engine.profile(shape)
        prepared = profile.answers(profile.shape(shape)).prepared.by_plugin["resourceclass"]
        rows = cluster.engine.tables.rows
        assert prepared.score(rows).tolist() == [prepared.score_row(int(row)) for row in rows]
        assert prepared.filter(rows).tolist() == [prepared.filter_row(int(row)) for row in rows]


def test_a_record_that_the_scheduler_changes_counts_at_once(worked: Cluster) -> None:
    worked.apply(pod("a", {"rc1": 2}, node="n1", annotations=held({"rc1": {"cr1": 2}})))
    assert left(worked) == {"rc1": 3, "rc2": 3, GPU: 3}
    worked.apply(pod("a", {"rc1": 2}, node="n1", annotations=held({"rc1": {"cr2": 2}})))
    assert left(worked) == {"rc1": 3, "rc2": 1, GPU: 3}
    worked.apply(pod("a", {"rc1": 2}, node="n1"))
    assert left(worked) == {"rc1": 3, "rc2": 3, GPU: 3}


def forged(name: str, asked: dict[str, Any], record: dict[str, dict[str, int]], **more: Any) -> Document:
    """A pod on n1 with a record that nobody checked."""
    made = pod(name, asked, **more)
    made["spec"]["nodeName"] = "n1"
    made["metadata"].setdefault("annotations", {})[RECORD] = format_record({"c": record})
    return made


@pytest.mark.parametrize(
    ("asked", "record", "left"),
    [
        ({GPU: 1}, {GPU: {"cr2": 3}}, 4),
        ({}, {GPU: {"cr2": 3}}, 5),
        ({"cpu": 1}, {"rc2": {"cr2": 3}}, 5),
        ({"rc1": 1}, {"rc1": {"cr1": 1}, "rc2": {"cr2": 3}}, 4),
        ({"rc2": 2}, {"rc2": {"cr2": 1, "cr1": 4}}, 3),
        ({"rc1": 3}, {"rc1": {"cr1": 1}}, 2),  # nor less: the pod runs with three devices
        ({"pair": 1}, {"pair": {"cr1": 2}}, 3),
        ({"pair": 1}, {"pair": {"cr1": 2, "cr2": 2}}, 3),
        ({"gone": 1}, {"gone": {"cr2": 2}}, 3),  # of a class that was deleted, which may have had groups
    ],
)
@pytest.mark.parametrize("classes_first", [True, False])
def test_a_record_is_worth_what_the_pod_asks_for(
    asked: dict[str, Any], record: dict[str, dict[str, int]], left: int, classes_first: bool
) -> None:
    classes = [ANY, PRECIOUS, klass("pair", groupBy="link", groupSize=2)]
    node = machine("n1", resource("cr1", 2, link="a"), resource("cr2", 3, kind="precious", link="b"))
    holder = forged("p", asked, record)
    cluster = Cluster(*([*classes, node, holder] if classes_first else [node, holder, *classes]))
    assert cluster.place(pod("fits", {GPU: left})) is not None
    assert cluster.place(pod("more", {GPU: 1})) is None


def test_a_wish_does_not_hold_other_devices_in_each_container() -> None:
    """Init containers use the devices of later containers, so a pod is never worth the sum of both."""
    cluster = Cluster(ANY, machine("n1", CR1, CR2))
    wish = pod("p", {GPU: 2})
    wish["spec"]["initContainers"] = [{"name": "i", "resources": {"limits": {GPU: "2"}}}]
    wish["metadata"]["annotations"] = {RECORD: format_record({"i": {GPU: {"cr1": 2}}, "c": {GPU: {"cr2": 2}}})}
    assert "gives it 4 of nvidia.com/gpu at a time, and it asks for 2" in cluster.why(wish)
    wish["metadata"]["annotations"] = {RECORD: format_record({"i": {GPU: {"cr2": 2}}, "c": {GPU: {"cr2": 2}}})}
    assert cluster.place(wish) is not None


def test_wishes_in_container_fields_are_told_apart() -> None:
    cluster = Cluster(ANY, machine("n1", CR1, CR2))
    for name, wanted in (("a", "cr2"), ("b", "cr1")):
        wish = pod(name, {GPU: 1})
        wish["spec"]["containers"][0][RECORD_FIELD] = {GPU: [{"computeResourceName": wanted, "count": 1}]}
        assert cluster.place(wish) == {GPU: {wanted: 1}}


def test_byte_like_amounts_cost_no_memory_and_no_time() -> None:
    """Two containers with 16Mi each: the record is as short as for two devices."""
    many = 16 << 20
    cluster = Cluster(ANY, machine("n1", classic=4 * many), machine("n2", classic=many))
    both = pod("p", {GPU: many}, init={GPU: many})
    both["spec"]["containers"].append({**both["spec"]["containers"][0], "name": "d"})
    tracemalloc.start()
    bound = cluster.place(both)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bound is not None and peak < 10 << 20
    record = json.loads(bound_record(cluster, "p"))
    assert {name: given[GPU] for name, given in record.items()} == {
        each: [{"computeResourceName": CLASSIC, "count": many}] for each in ("i", "c", "d")
    }
    assert cluster.place(pod("rest", {GPU: 2 * many})) is not None
    assert cluster.place(pod("more", {GPU: many})) is not None  # on n2
    assert cluster.place(pod("none", {GPU: 1})) is None


def bound_record(cluster: Cluster, name: str) -> str:
    found = next(each.pod for each in cluster.engine.tables.pods.values() if each.pod.metadata.name == name)
    return str(found.metadata.annotations[RECORD])


@pytest.mark.parametrize("amount", [MANY - 1, MANY, (1 << 62) + 1, (1 << 63) - 1])
def test_scores_and_filters_are_exact_for_amounts_of_any_size(amount: int) -> None:
    most = (1 << 63) - 1
    cluster = Cluster(ANY, klass("rc2"), klass("rc3"), machine("n1", classic=most), machine("n2", classic=amount - 1))
    wanted = as_pod(pod("p", {GPU: amount}))
    decision = cluster.engine.schedule(wanted)
    assert decision.node == "n1"
    assert cluster.place(pod("p", {"rc1": amount})) is not None
    left = most - amount
    assert (cluster.place(pod("q", {GPU: amount})) is not None) == (left >= amount)


def test_joint_assignment_of_large_amounts_is_exact() -> None:
    """The first name takes as much as it can from the devices that the fewest classes match, and no more."""
    many = 16 << 20
    for first, second, free in ((3, 2, (2, 3)), (4, 1, (2, 3)), (1, 3, (2, 3))):
        demands = [Demand("a", first * many, (0, 1)), Demand("b", second * many, (1,))]
        large = assign(demands, [each * many for each in free])
        small = assign([Demand("a", first, (0, 1)), Demand("b", second, (1,))], list(free))
        assert large is not None and small is not None
        assert large == [{place: count * many for place, count in given.items()} for given in small]


OFF = {
    "profiles": [
        {"schedulerName": "default-scheduler"},
        {"schedulerName": "without", "plugins": {"multiPoint": {"disabled": [{"name": "resourceclass"}]}}},
    ]
}


@pytest.mark.parametrize("name", ["rc1", "resourceclass.scheduling.sigs.x-k8s.io/rc1", "unknown", GPU])
@pytest.mark.parametrize("only", [True, False])
def test_without_the_plugin_pods_that_ask_for_classes_wait(name: str, only: bool) -> None:
    """Also if another profile has it. Raw resources count as in Kubernetes: by the capacity of the node."""
    document = {"profiles": OFF["profiles"][1:]} if only else OFF
    engine = Engine(profiles.load(document).profiles)
    for each in (ANY, PRECIOUS):
        engine.apply("ResourceClass", each)
    engine.set_node(as_node(machine("n1", CR1, CR2)))
    decision = engine.schedule(as_pod(pod("p", {name: 1}, spec={"schedulerName": "without"})))
    assert decision.node is None and f"Insufficient {name}" in decision.message
    engine.set_node(as_node(machine("n2", CR1, classic=1)))
    decision = engine.schedule(as_pod(pod("p", {name: 1}, spec={"schedulerName": "without"})))
    assert decision.node == ("n2" if name == GPU else None)
    if not only:
        fits = engine.schedule(as_pod(pod("q", {name: 1}))).node is not None
        assert fits == (name != "unknown")
