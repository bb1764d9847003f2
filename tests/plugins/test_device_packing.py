"""The packing policies on nodes small enough to compute every score by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from wharfinger.engine.profile import BadArguments, read_args
from wharfinger.engine.registry import known_plugins
from wharfinger.plugins.device_packing.fragmentation import Fragmentation, WorkloadShape, typical_shapes
from wharfinger.plugins.device_packing.opportunity_cost import OpportunityCost
from wharfinger.plugins.device_packing.policies import FGD, PackingPolicy
from wharfinger.plugins.device_packing.registry import POLICIES
from wharfinger.plugins.device_packing.rooms import ModelNumbers, NodeRooms, PodDemand

HALF = PodDemand(4_000, 1, 500)
WHOLE_ONE = PodDemand(8_000, 1, 1000)
PAIR = PodDemand(8_000, 2, 1000)
PLAIN = PodDemand(8_000)
WORKLOAD = [WorkloadShape(HALF, 2), WorkloadShape(WHOLE_ONE, 1), WorkloadShape(PLAIN, 1)]


def rooms(*nodes: tuple[int, list[int]], models: list[int] | None = None, kinds: list[int] | None = None) -> NodeRooms:
    """Nodes with CPU and what is left of each device."""
    most = max(len(free) for _, free in nodes)
    return NodeRooms(
        cpu=np.array([cpu for cpu, _ in nodes]),
        free=np.array([free + [0] * (most - len(free)) for _, free in nodes]),
        devices=np.array([len(free) for _, free in nodes]),
        model=np.array(models or [0] * len(nodes)),
        kinds=np.array(kinds or [0] * len(nodes)),
        keys=np.arange(len(nodes)) + 77,
    )


def policy(name: str, workload: list[WorkloadShape] = WORKLOAD) -> PackingPolicy:
    return POLICIES[name](workload, ModelNumbers({"": 0, "A": 1}))


# -- fragmentation


def fragmented(nodes: NodeRooms, workload: list[WorkloadShape]) -> list[float]:
    """Thousandths of devices, by the definition: shape by shape."""
    names = ["", "A"]
    found = []
    for index in range(len(nodes.cpu)):
        free = [int(each) for each in nodes.free[index]]
        total = 0.0
        for demand, weight in workload:
            enough = sum(1 for each in free if each >= demand.milli) >= demand.devices
            allowed = not demand.models or names[int(nodes.model[index])] in demand.models
            if not demand.devices or not enough or not allowed or nodes.cpu[index] < demand.cpu:
                total += weight * sum(free)
            else:
                total += weight * sum(each for each in free if each < demand.milli)
        found.append(total / sum(weight for _, weight in workload))
    return found


def test_fragmentation_of_hand_made_nodes() -> None:
    measure = Fragmentation(WORKLOAD, ModelNumbers({"": 0}))

    found = measure.of(rooms((8_000, [1000, 500]), (4_000, [1000, 500]), (0, [1000]), (8_000, [0, 0])))

    # 1: nothing for halves (weight 2), 500 for whole ones, 1500 for plain pods; 2: whole ones lack CPU, too.
    assert found.tolist() == [500 + 1500, 1500 + 1500, 4 * 1000, 0]


def test_several_devices_are_usable_only_together() -> None:
    measure = Fragmentation([WorkloadShape(PAIR, 1)], ModelNumbers({"": 0}))

    assert measure.of(rooms((8_000, [1000, 500, 1000]), (8_000, [1000, 500]))).tolist() == [500, 1500]


def test_devices_of_a_model_that_is_not_allowed_are_fragmented() -> None:
    measure = Fragmentation([WorkloadShape(HALF._replace(models=frozenset({"A"})), 1)], ModelNumbers({"": 0, "A": 1}))

    assert measure.of(rooms((8_000, [1000]), (8_000, [1000]), models=[0, 1])).tolist() == [1000, 0]


@pytest.mark.parametrize("seed", range(20))
def test_fragmentation_is_that_of_the_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    demands = [
        PodDemand(
            int(random.integers(1, 9)) * 1000, int(count), int(random.integers(1, 10)) * 100 if count == 1 else 1000
        )
        for count in random.choice([1, 1, 1, 2, 4], 8)
    ]
    demands = [each._replace(models=frozenset({"A"})) if random.random() < 0.3 else each for each in demands]
    workload = [WorkloadShape(each, int(random.integers(1, 9))) for each in {*demands, PodDemand(3000)}]
    measure = Fragmentation(workload, ModelNumbers({"": 0, "A": 1}))
    nodes = rooms(
        *((int(random.integers(0, 10)) * 1000, (random.integers(0, 11, 4) * 100).tolist()) for _ in range(12)),
        models=random.integers(0, 2, 12).tolist(),
    )
    weight = sum(each.weight for each in workload)

    assert (measure.of(nodes) / weight).tolist() == pytest.approx(fragmented(nodes, workload))
    for demand in (PodDemand(1000), PodDemand(1000, 1, 300), PodDemand(1000, 1, 1000)):
        for node in range(12):
            for device in range(4 if demand.shared else 1):
                after = nodes.take(np.array([node]))
                after.cpu = after.cpu - demand.cpu
                chosen = [device] if demand.shared else np.flatnonzero(after.free[0] == 1000)[: demand.devices]
                if len(chosen) < demand.devices or (demand.shared and after.free[0, device] < demand.milli):
                    continue
                after.free[0, chosen] -= demand.milli
                predicted = (
                    measure.after_share(nodes, demand)[:, device] if demand.shared else measure.after(nodes, demand)
                )
                assert predicted[node] == measure.of(after)[0]


def test_typical_shapes_are_the_most_frequent_ones_that_cover_95_per_cent() -> None:
    demands = [HALF] * 90 + [PLAIN] * 4 + [PAIR] * 4 + [WHOLE_ONE] * 2

    # Equally frequent shapes: the one that asks for more first.
    assert typical_shapes(Counter(demands)) == [(HALF, 90), (PAIR, 4), (PLAIN, 4)]


# -- the policies


def test_best_fit_prefers_the_node_with_the_least_left() -> None:
    nodes = rooms((64_000, [1000, 500]), (64_000, [1000, 1000]), (8_000, [1000, 1000]))

    # 1 - ((64 - 8) / 128 + (1.5 - 1) / 8) / 2 and so on
    assert policy("BestFit").nodes(nodes, WHOLE_ONE).tolist() == [75, 71, 93]


def test_dot_product_prefers_the_node_with_the_least_product() -> None:
    nodes = rooms((128_000, [1000] * 8), (8_000, [1000]), (128_000, [1000]))

    # 1 - (CPU/128 * 64/128 + GPUs/8 * 4/8) / 2
    assert policy("DotProd").nodes(nodes, PodDemand(64_000, 4, 1000)).tolist() == [50, 95, 71]


def test_clustering_prefers_nodes_with_pods_of_the_same_kind() -> None:
    same, mixed, other = HALF.kind, HALF.kind | PAIR.kind, PAIR.kind
    nodes = rooms(*[(8_000, [1000, 1000])] * 4, kinds=[same, mixed, 0, other])

    # 25 * (8 - 2) / 8 = 18 for how full the node is, and 75, 50, 25 or 0 for its pods
    assert policy("GpuClustering").nodes(nodes, HALF).tolist() == [93, 68, 43, 18]
    assert policy("GpuClustering").nodes(nodes, PLAIN).tolist() == [0, 0, 0, 0]


def test_kinds_of_demand_are_told_apart() -> None:
    kinds = [each.kind for each in (PLAIN, HALF, WHOLE_ONE, PAIR, PodDemand(0, 8, 1000))]

    assert len(set(kinds)) == len(kinds)
    assert all(kind & other == 0 for kind in kinds for other in kinds if kind != other)


def test_packing_prefers_devices_in_use_then_nodes_in_use() -> None:
    nodes = rooms((8_000, [700, 600]), (8_000, [1000, 300]), (8_000, [1000, 1000]))

    # 100 - 60 / 10; an unused device of a node in use; a node without use
    assert policy("GpuPacking").nodes(nodes, HALF).tolist() == [94, 49, 31]
    assert policy("GpuPacking").nodes(nodes, WHOLE_ONE).tolist()[1:] == [49, 31]
    assert policy("GpuPacking").nodes(nodes, PLAIN).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["BestFit", "DotProd", "GpuClustering", "GpuPacking"])
def test_baselines_take_the_fullest_device_on_which_a_share_fits(name: str) -> None:
    nodes = rooms((8_000, [1000, 501, 509, 400]))

    assert policy(name).devices(nodes, HALF)[0, :3].argmax() == 1


def test_fgd_takes_the_device_that_leaves_the_least_fragmented() -> None:
    chosen = policy("FGD").devices(rooms((8_000, [1000, 500])), HALF)[0].tolist()

    # With much CPU: (500 + 1500) / 4 before. On the first device (1000 + 1000) / 4, because no device is left for whole
    # ones; on the second (0 + 1000) / 4, and 100 / (1 + exp(-0.25)) = 56.
    roomy = policy("FGD").devices(rooms((80_000, [1000, 500])), HALF)[0].tolist()
    assert roomy == [50, 56]
    # With CPU for halves only, there is nothing left for whole ones in either case.
    assert chosen == [50, 50]


def test_fgd_scores_a_node_by_its_best_device() -> None:
    rule = policy("FGD")
    nodes = rooms((80_000, [1000, 500]), (80_000, [1000, 1000]), (80_000, [1000, 400]))

    assert isinstance(rule, FGD)
    assert rule.nodes(nodes, HALF).tolist() == [56, 50, 50]


def test_random_choice_follows_from_seed_and_turn() -> None:
    nodes = rooms(*[(8_000, [1000, 1000])] * 50)
    first, second = policy("Random"), policy("Random")
    drawn = [int(first.nodes(nodes, HALF).argmax())]
    for first.turn in range(1, 40):
        drawn.append(int(first.nodes(nodes, HALF).argmax()))

    assert second.nodes(nodes, HALF).argmax() == drawn[0]
    assert len(set(drawn)) > 15
    assert {int(first.devices(nodes, HALF)[node].argmax()) for node in range(50)} == {0, 1}


# -- the plugins


def test_impossible_shapes_of_a_workload_are_refused() -> None:
    given = {"workload": [{"cpu": "x"}, {"cpu": "1", "devices": 2, "milli": 500}, {"cpu": "1", "weight": 0}]}

    with pytest.raises(BadArguments) as refused:
        read_args(known_plugins()["FGD"], given)

    paths = [each.path for each in refused.value.errors]
    assert paths == ["workload[0].cpu", "workload[1].milli", "workload[2].weight"]


def test_packing_plugins_are_off_by_default() -> None:
    assert all(not known_plugins()[name].enabled and known_plugins()[name].ours for name in POLICIES)


# -- our own


def opportunity_cost(*workload: WorkloadShape) -> OpportunityCost:
    rule = POLICIES["OpportunityCost"](workload, ModelNumbers({"": 0, "A": 1, "B": 2}))
    assert isinstance(rule, OpportunityCost)
    return rule


def share(milli: int) -> PodDemand:
    return PodDemand(1000, 1, milli)


def best_device(rule: PackingPolicy, free: list[int], demand: PodDemand) -> int:
    scores = rule.devices(rooms((64_000, free)), demand)[0]
    return max((index for index, left in enumerate(free) if left >= demand.milli), key=lambda index: int(scores[index]))


def test_a_share_goes_where_the_rest_loses_the_least_worth() -> None:
    rule = opportunity_cost(WorkloadShape(share(600), 10), WorkloadShape(share(400), 20))  # both cost half a device

    assert best_device(rule, [1000, 600], share(400)) == 1  # 0.5, instead of 0.5 and 0.1 for an unused device
    assert best_device(rule, [400, 600, 350], share(300)) == 2  # a gap that is of use to nobody else
    assert best_device(rule, [500, 900], share(100)) == 0  # leaves 400; FGD alone decides between equal costs
    assert best_device(rule, [400, 1000], share(100)) == 1  # 400 is worth a half, 1000 and 900 are worth as much


def test_a_pod_leaves_scarce_models_to_those_that_need_them() -> None:
    restricted = PodDemand(1000, 1, 1000, frozenset({"A"}))
    rule = opportunity_cost(WorkloadShape(restricted, 10), WorkloadShape(WHOLE_ONE, 10))
    nodes = rooms((64_000, [1000]), (64_000, [1000]), models=[1, 2])

    rule.supplied({"A": 10, "B": 10})

    # Restricted pods ask for all of A: 0.2 devices, that is 5 points, beside what FGD says.
    scarce, other = rule.nodes(nodes, WHOLE_ONE).tolist()
    assert scarce < other
    rule.supplied({"A": 1000, "B": 10})
    plentiful, other = rule.nodes(nodes, WHOLE_ONE).tolist()
    assert plentiful - other > scarce - other


def test_the_workload_is_learnt_from_the_pods_on_nodes() -> None:
    told = opportunity_cost(WorkloadShape(share(600), 100), WorkloadShape(share(400), 200))
    rule = opportunity_cost()
    changes = 0
    for number in range(300):
        changes += rule.placed(share(600) if number % 3 == 0 else share(400))

    assert 10 < changes < 60  # not for every pod
    free = [400, 600, 350, 1000, 900]
    for milli in (100, 300, 350, 400, 600):
        assert best_device(rule, free, share(milli)) == best_device(told, free, share(milli))
    for _ in range(300):
        rule.placed(share(600) if rule._pods[share(600)] else share(400), -1)
    assert not rule._pods
