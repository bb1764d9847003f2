"""DynamicResources by its parts: what is searched again, what an explanation says, and what bad input costs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scheduler.driver import Driver

from wharfinger.api.errors import Conflict, ServiceUnavailable
from wharfinger.api.views import Node, Pod, view
from wharfinger.devices.allocator import ClaimToAllocate, Search, SearchTooLong
from wharfinger.devices.claims import claim_spec
from wharfinger.devices.classes import DeviceClass
from wharfinger.devices.pools import gather_pools
from wharfinger.devices.selectors import BadSelectorExpression, SelectorError, device_selector
from wharfinger.devices.slices import Slice
from wharfinger.devices.usage import DeviceUsage
from wharfinger.engine import Engine
from wharfinger.framework.events import Action, ClusterEvent
from wharfinger.framework.prebinding import StepFailed, Write
from wharfinger.plugins.dynamic_resources.catalogue import catalogue_of
from wharfinger.plugins.dynamic_resources.filtering import DevicesPrepared

Document = dict[str, Any]
DRIVER = "gpu.example.com"


def node(name: str) -> Node:
    return view({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "64", "pods": "110"}}}, Node)


def slice_of(node_name: str, *devices: Document, generation: int = 1, count: int = 1, name: str = "") -> Document:
    pool = {"name": node_name, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "nodeName": node_name, "pool": pool, "devices": list(devices)}
    return {"metadata": {"name": name or f"{node_name}-gpu"}, "spec": spec}


def device(name: str, **fields: Any) -> Document:
    attributes = fields.pop("attributes", {"model": {"string": "a100"}})
    return {"name": name, "attributes": attributes, **fields}


def device_class(*expressions: str, name: str = "gpu") -> Document:
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": each}} for each in expressions]}}


def claim(name: str, count: int = 1, constraints: list[Document] | None = None, **exactly: Any) -> Document:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **exactly}
    devices: Document = {"requests": [{"name": "gpus", "exactly": exactly}], "constraints": constraints or []}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices}}


def pod(name: str, *claims: str) -> Pod:
    references = [{"name": each, "resourceClaimName": each} for each in claims]
    metadata = {"name": name, "namespace": "default", "uid": name}
    return view({"metadata": metadata, "spec": {"containers": [{"name": "c"}], "resourceClaims": references}}, Pod)


def engine_with(*slices: Document, classes: tuple[Document, ...] = (device_class(),), nodes: int = 2) -> Engine:
    engine = Engine()
    for number in range(nodes):
        engine.set_node(node(f"n{number}"))
    for each in classes:
        engine.apply("DeviceClass", each)
    for each in slices:
        engine.apply("ResourceSlice", each)
    return engine


def prepared(engine: Engine, asking: Pod) -> DevicesPrepared:
    found = engine.profile(asking).answers_for(asking).prepared.by_plugin["DynamicResources"]
    assert isinstance(found, DevicesPrepared)
    return found


def test_only_rows_whose_devices_changed_are_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with(*(slice_of(f"n{n}", device("a"), device("b")) for n in range(10)), nodes=10)
    searched: list[int] = []
    search = DevicesPrepared._search
    monkeypatch.setattr(
        DevicesPrepared, "_search", lambda self, row, *given: searched.append(row) or search(self, row, *given)
    )
    for number in range(5):
        engine.apply("ResourceClaim", claim(f"c{number}"))
        asking = pod(f"p{number}", f"c{number}")
        decision = engine.schedule(asking)
        assert decision.node is not None
        assert engine.assume(asking, decision.node).ok
    # Rows that are alike are searched once: those without a device in use, and those with one. Then each choice.
    assert len(searched) == 1 + 1 + 5
    searched.clear()
    engine.apply("ResourceSlice", slice_of("n9", device("a"), device("b"), device("c"), generation=2))
    engine.apply("ResourceClaim", claim("last"))
    engine.schedule(pod("last", "last"))
    assert set(searched) <= {engine.tables.row_of["n9"], decision.row}
    assert engine.tables.row_of["n9"] in searched


def test_the_last_device_is_given_once_whatever_the_order_of_events() -> None:
    engine = engine_with(slice_of("n0", device("a")))
    engine.apply("ResourceClaim", claim("c0"))
    engine.apply("ResourceClaim", claim("c1"))
    first, second = pod("p0", "c0"), pod("p1", "c1")
    assert engine.schedule(first).node == engine.schedule(second).node == "n0"
    assert engine.assume(first, "n0").ok
    refused = engine.assume(second, "n0")
    assert refused.reasons == ("cannot allocate all claims",)
    assert engine.schedule(second).node is None
    engine.forget(first)
    assert engine.schedule(second).node == "n0"


def test_another_pod_waits_while_a_claim_is_being_allocated() -> None:
    engine = engine_with(slice_of("n0", device("a")))
    engine.apply("ResourceClaim", claim("c"))
    first, second = pod("p0", "c"), pod("p1", "c")
    assert engine.assume(first, "n0").ok
    assert "resource claim default/c is in the process of being allocated" in engine.schedule(second).message


def test_an_explanation_counts_the_devices_by_cause() -> None:
    tainted = device("tainted", taints=[{"key": "broken", "effect": "NoSchedule"}])
    small = device("small", attributes={"model": {"string": "t4"}})
    engine = engine_with(slice_of("n0", device("used"), device("free"), tainted, small))
    holding = claim("other")
    result = {"request": "gpus", "driver": DRIVER, "pool": "n0", "device": "used"}
    holding["status"] = {"allocation": {"devices": {"results": [result]}}}
    engine.apply("ResourceClaim", holding)
    selectors = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "a100"'}}]
    engine.apply("ResourceClaim", claim("c", 2, selectors=selectors))
    asking = pod("p", "c")
    answers = prepared(engine, asking)
    row = engine.tables.row_of["n0"]
    assert answers.detail(row) == (
        "default/c, request gpus: 1 of 4 devices usable, 2 needed"
        " (1 in use, 1 not selected by request selector #0, 1 tainted broken:NoSchedule)"
    )
    found = answers.diagnose(row)[0]
    assert {cause: [each.device for each in devices] for cause, devices in found.causes.items()} == {
        "in use": ["used"],
        "not selected by request selector #0": ["small"],
        "tainted broken:NoSchedule": ["tainted"],
    }
    empty = engine.tables.row_of["n1"]
    assert answers.detail(empty) == "default/c, request gpus: 0 of 0 devices usable, 2 needed"


def test_an_explanation_lists_the_devices() -> None:
    engine = engine_with(slice_of("n0", device("free"), device("t", taints=[{"key": "k", "effect": "NoExecute"}])))
    engine.apply("ResourceClaim", claim("c", 2))
    asking = pod("p", "c")
    rows = [engine.tables.row_of["n0"]]
    (table,) = engine.profile(asking).plugins["DynamicResources"].explained(asking, rows)
    assert [dict(zip(table.header, row, strict=True)) for row in table.rows] == [
        {**ABOUT, "devices": 1, "verdict": "usable", "which": ("n0/free",)},
        {**ABOUT, "devices": 1, "verdict": "tainted k:NoExecute", "which": ("n0/t",)},
    ]
    assert not list(engine.profile(asking).plugins["DynamicResources"].explained(pod("q"), rows))


ABOUT = {"node": "n0", "claim": "default/c", "request": "gpus", "needed": 2}


def test_an_explanation_names_the_constraint() -> None:
    devices = [device(f"d{n}", attributes={"root": {"int": n}}) for n in range(3)]
    engine = engine_with(slice_of("n0", *devices))
    engine.apply("ResourceClaim", claim("c", 2, [{"matchAttribute": f"{DRIVER}/root"}]))
    detail = prepared(engine, pod("p", "c")).detail(engine.tables.row_of["n0"])
    assert detail.endswith(f"3 of 3 devices usable, 2 needed (of which at most 1 have the same {DRIVER}/root)")


def test_an_error_names_the_claim_of_the_pod_that_asks() -> None:
    engine = engine_with(slice_of("n0", device("a")))
    selectors = [{"cel": {"expression": f'device.attributes["{DRIVER}"].nosuch == 1'}}]
    for name in ("c0", "c1"):
        engine.apply("ResourceClaim", claim(name, selectors=selectors))
        message = engine.schedule(pod(f"p-{name}", name)).message
        assert f"claim default/{name}: selector #0 on device {DRIVER}/n0/a: CEL runtime error: no such key" in message


def test_a_newer_generation_replaces_the_pool_and_an_incomplete_one_is_passed_over() -> None:
    slices = [Slice(slice_of("n0", device("a"), count=2))]
    pools = gather_pools(node("n0"), slices, {slices[0].pool: slices})
    assert [pool.incomplete for pool in pools] == [True]
    slices.append(Slice(slice_of("n0", device("b"), generation=2, name="newer")))
    pools = gather_pools(node("n0"), slices, {slices[0].pool: slices})
    assert [each.name for _, each in pools[0].devices] == ["b"]


def searching(devices: int, count: int, most_steps: int) -> Search:
    """All devices differ in an attribute that must be the same."""
    published = [device(f"d{n}", attributes={"own": {"int": n}}) for n in range(devices)]
    slices = [Slice(slice_of("n0", *published))]
    pools = gather_pools(node("n0"), slices, {slices[0].pool: slices})
    constraints = [{"distinctAttribute": f"{DRIVER}/own"}, {"matchAttribute": f"{DRIVER}/own", "requests": ["last"]}]
    request = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    last = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    spec = {"requests": [{"name": "r", "exactly": request}, {"name": "last", "exactly": last}]}
    wanted = claim_spec({"devices": {**spec, "constraints": constraints}})
    classes = {"gpu": DeviceClass(device_class())}
    return Search(
        node("n0"), pools, [ClaimToAllocate("default/c", wanted)], DeviceUsage(), classes, most_steps=most_steps
    )


def test_a_search_without_end_is_given_up() -> None:
    with pytest.raises(SearchTooLong, match="node n0: timed out trying to allocate devices"):
        searching(40, 10, most_steps=5_000).run()


def test_many_devices_do_not_exhaust_the_stack() -> None:
    published = [device(f"d{n}") for n in range(1000)]
    slices = [Slice(slice_of("n0", *published))]
    pools = gather_pools(node("n0"), slices, {slices[0].pool: slices})
    request = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 32}
    spec = claim_spec({"devices": {"requests": [{"name": "r", "exactly": request}]}})
    wanted = [ClaimToAllocate(f"default/c{n}", spec) for n in range(31)]
    found = Search(node("n0"), pools, wanted, DeviceUsage(), {"gpu": DeviceClass(device_class())}).run()
    assert found is not None
    assert len({each.device.id for chosen in found for each in chosen.devices}) == 31 * 32


LARGE = "x" * 64
HOSTILE = [
    "[1,2,3,4,5,6,7,8,9,10]" + ".map(a, [1,2,3,4,5,6,7,8,9,10]" * 8 + ".size()" + ")" * 8 + ".size() == 0",
    "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c,"
    " [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f, a+b+c+d+e+f >= 0))))))",
    f'"{LARGE}".replace("x", "{LARGE}").replace("x", "{LARGE}").replace("x", "{LARGE}").size() > 0',
]


@pytest.mark.parametrize("expression", HOSTILE)
def test_an_expression_that_costs_too_much_is_not_evaluated(expression: str) -> None:
    content = Slice(slice_of("n0", device("a"))).devices[0].content
    with pytest.raises((SelectorError, BadSelectorExpression)):
        device_selector(expression).matches(content)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.attributes["unknown.example.com"].?x.orValue(true)', True),
        ('"unknown.example.com" in device.attributes || has(device.attributes["unknown.example.com"].x)', False),
        ('size(device.attributes) == 1 && !has(device.attributes["q.example.com"].x)', True),
        ("device.attributes[device.driver].model == 'a100'", True),
        ('device.attributes["un" + "known"].?x.hasValue()', False),
        ('sets.contains(["a100", "h100"], [device.attributes["gpu.example.com"].model])', True),
        ('cel.bind(a, device.attributes["gpu.example.com"], a.model.startsWith("a"))', True),
        ('device.attributes["gpu.example.com"].model > 3', "no such overload"),
        ('device.attributes["gpu.example.com"].model', "CEL result of type string could not be converted to bool"),
        ('device.capacity["gpu.example.com"].memory > 3', BadSelectorExpression),
        ('quantity("1").isLessThan(semver("1.0.0"))', BadSelectorExpression),
        ("device.driver", BadSelectorExpression),
    ],
)
def test_what_expressions_see_of_a_device(expression: str, expected: Any) -> None:
    content = Slice(slice_of("n0", device("a"))).devices[0].content
    if expected is BadSelectorExpression:
        with pytest.raises(BadSelectorExpression):
            device_selector(expression)
    elif isinstance(expected, str):
        with pytest.raises(SelectorError, match=expected):
            device_selector(expression).matches(content)
    else:
        assert device_selector(expression).matches(content) is expected


def carried_out(engine: Engine, asking: Pod) -> Any:
    """The steps before the bind of an assumed pod."""
    (preparation,) = [each for name, each in engine.preparations(asking, "n0") if name == "DynamicResources"]
    return preparation.steps()


def test_a_lost_answer_does_not_free_the_devices() -> None:
    engine = engine_with(slice_of("n0", device("a")))
    own = claim("c0")
    own["metadata"] |= {"resourceVersion": "1", "finalizers": ["resource.kubernetes.io/delete-protection"]}
    engine.apply("ResourceClaim", own)
    engine.apply("ResourceClaim", claim("c1"))
    first, second = pod("p0", "c0"), pod("p1", "c1")
    assert engine.assume(first, "n0").ok
    steps = carried_out(engine, first)
    write = next(steps)
    assert write.subresource == "status"
    asked = steps.throw(ServiceUnavailable("the connection was lost"))
    assert asked.verb == "get"
    stored = {**own, "metadata": {**own["metadata"], "resourceVersion": "2"}, "status": write.patch["status"]}
    with pytest.raises(StepFailed, match="add allocation and reservation to claim default/c0"):
        steps.send(stored)
    engine.forget(first)
    assert engine.schedule(second).node is None  # the claim has the device, though no watch has reported it
    assert engine.schedule(first).node == "n0"


def test_a_conflict_is_resolved_with_the_latest_claim() -> None:
    engine = engine_with(slice_of("n0", device("a")))
    own = claim("c")
    own["metadata"] |= {"resourceVersion": "1", "finalizers": ["resource.kubernetes.io/delete-protection"]}
    engine.apply("ResourceClaim", own)
    asking = pod("p", "c")
    assert engine.assume(asking, "n0").ok
    steps = carried_out(engine, asking)
    next(steps)
    assert steps.throw(Conflict("the object has been modified")).verb == "get"
    write = steps.send({**own, "metadata": {**own["metadata"], "resourceVersion": "7"}})
    assert write.patch["metadata"] == {"resourceVersion": "7", "uid": "c"}
    elsewhere = {"devices": {"results": [{"request": "gpus", "driver": DRIVER, "pool": "n0", "device": "a"}]}}
    steps.throw(Conflict("the object has been modified"))
    taken = {**own, "metadata": {**own["metadata"], "resourceVersion": "8"}, "status": {"allocation": elsewhere}}
    with pytest.raises(StepFailed, match="claim default/c got allocated elsewhere in the meantime"):
        steps.send(taken)


def test_a_selector_that_costs_too_much_fails_its_own_pods() -> None:
    """Such a selector is refused at admission; one that was stored before is not evaluated."""
    attributes = {f"a{number}": {"string": "x" * 64} for number in range(30)}
    own = f'device.attributes["{DRIVER}"]'
    slow = "true"
    for variable in "abcde":
        slow = f'{own}.all({variable}, {variable} != "" && {slow})'
    engine = engine_with(
        *(slice_of(f"n{n}", device("d", attributes=attributes)) for n in range(2)),
        classes=(device_class(slow, name="slow"), device_class()),
    )
    engine.apply("ResourceClaim", claim("bad", deviceClassName="slow"))
    engine.apply("ResourceClaim", claim("good"))
    assert "cost limit exceeded" in engine.schedule(pod("p", "bad")).error
    assert engine.schedule(pod("q", "good")).node is not None


@pytest.mark.parametrize(("owner", "wakes"), [("p", True), ("other", False)])
def test_a_pod_is_tried_again_when_a_claim_of_an_earlier_attempt_is_gone(owner: str, wakes: bool) -> None:
    engine = engine_with(slice_of("n0", device("g0")))
    made = claim("p-extended-resources-1")
    made["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": owner, "controller": True}]
    gone = ClusterEvent("ResourceClaim", Action.DELETE, old=made)
    assert engine.wakes(pod("p"), ["DynamicResources"], gone) is wakes


def allocated(name: str, device: str, version: str) -> Document:
    made = claim(name)
    made["metadata"]["resourceVersion"] = version
    made["status"] = {"allocation": {"devices": {"results": [{"driver": DRIVER, "pool": "n0", "device": device}]}}}
    return made


def test_a_late_answer_does_not_revive_a_deleted_claim() -> None:
    engine = engine_with(slice_of("n0", device("g0")))
    catalogue = catalogue_of(engine.tables)
    written = allocated("gone", "g0", "2")
    engine.apply("ResourceClaim", claim("gone"))
    engine.apply("ResourceClaim", written)
    engine.apply("ResourceClaim", written, deleted=True)
    catalogue.assume(written)
    engine.apply("ResourceClaim", claim("c"))
    assert engine.schedule(pod("p", "c")).node == "n0"


def test_a_claim_that_the_server_does_not_have_holds_nothing() -> None:
    engine = engine_with(slice_of("n0", device("g0")))
    engine.apply("ResourceClaim", allocated("gone", "g0", "2"))
    engine.apply("ResourceClaim", claim("c"))
    assert engine.schedule(pod("p", "c")).node is None
    engine.object_gone("ResourceClaim", "default", "gone")
    assert engine.schedule(pod("p", "c")).node == "n0"


def test_pods_that_wait_for_the_devices_of_such_a_claim_are_tried_again() -> None:
    engine = engine_with(slice_of("n0", device("g0")))
    engine.apply("ResourceClaim", claim("c"))
    catalogue_of(engine.tables).assume(allocated("gone", "g0", "2"))  # no watch ever reports it
    driver = Driver(engine=engine)
    driver.pod(pod("p", "c"))
    assert driver.schedule() == ["p unschedulable"]
    driver.now = 1.0
    assert driver.schedule() == [], "nothing changed"
    driver.state.object_gone(Write("ResourceClaim", "default", "gone", verb="delete"), driver.now)
    assert driver.schedule() == ["p scheduled"]


def test_a_pod_is_tried_again_when_an_allocation_that_no_watch_reported_is_gone() -> None:
    engine = engine_with(slice_of("n0", device("g0")))
    before = claim("other")
    before["metadata"]["resourceVersion"] = "1"
    engine.apply("ResourceClaim", before)
    catalogue_of(engine.tables).assume(allocated("other", "g0", "2"))
    engine.apply("ResourceClaim", claim("c"))
    assert engine.schedule(pod("p", "c")).node is None
    engine.apply("ResourceClaim", before, deleted=True)
    assert engine.wakes(pod("p", "c"), ["DynamicResources"], ClusterEvent("ResourceClaim", Action.DELETE, old=before))
