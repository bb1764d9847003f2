"""Over random histories of volumes, claims, nodes and pods, cached answers equal those computed from scratch."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.plugins.volumes.objects import (
    HOST,
    ZONE,
    attachment,
    claim,
    csi_node,
    driver,
    engine_with,
    node,
    pod,
    pool,
    storage_class,
    tell,
    volume,
)

from wharfinger.engine import Engine
from wharfinger.plugins.volumes import catalogue as volume_catalogue
from wharfinger.plugins.volumes.attachments import Attachments
from wharfinger.plugins.volumes.catalogue import VolumeCatalogue
from wharfinger.plugins.volumes.supply import Supply

CLASSES = ("local", "dynamic")


def some_volume(rng: random.Random) -> Any:
    index = rng.randint(0, 9)
    only: Any = rng.choice([None, {ZONE: [rng.choice(["z1", "z2"])]}, {HOST: [f"n{rng.randint(0, 7)}"]}])
    return volume(
        f"v{index}",
        f"{rng.randint(1, 9)}Gi",
        storage_class=rng.choice(CLASSES),
        only=only,
        phase=rng.choice(["Available", "Available", "Released"]),
        labels=rng.choice([{}, {ZONE: "z1"}]),
        claim=rng.choice(["", "", "default/c1"]),
    )


def some_claim(rng: random.Random) -> Any:
    index = rng.randint(0, 5)
    modes = [rng.choice(["ReadWriteOnce", "ReadWriteOncePod"])]
    bound = rng.choice(["", "", f"v{rng.randint(0, 9)}"])
    return claim(f"c{index}", f"{rng.randint(1, 6)}Gi", storage_class=rng.choice(CLASSES), bound=bound, modes=modes)


def step(rng: random.Random, engine: Engine, waiting: dict[str, Any]) -> None:
    match rng.randint(0, 9):
        case 0 | 1:
            tell(engine, some_volume(rng))
        case 2:
            engine.apply("PersistentVolume", some_volume(rng), deleted=True)
        case 3:
            tell(engine, some_claim(rng))
        case 4:
            tell(engine, node(f"n{rng.randint(0, 7)}", zone=rng.choice(["z1", "z2"])))
        case 5:
            name = f"n{rng.randint(0, 7)}"
            if rng.random() < 0.3:
                engine.remove_node(name)
            else:
                tell(engine, csi_node(name, rng.choice([0, 1, 2, None])))
        case 6:
            tell(engine, pool(f"p{rng.randint(0, 2)}", f"{rng.randint(1, 9)}Gi", rng.choice(["z1", "z2"])))
        case 7:
            made = attachment(f"a{rng.randint(0, 3)}", f"n{rng.randint(0, 7)}", f"v{rng.randint(0, 9)}")
            engine.apply("VolumeAttachment", made, deleted=rng.random() < 0.4)
        case 8:
            name = f"pod-{rng.randint(0, 5)}"
            if name in waiting:
                engine.forget(waiting.pop(name))
        case 9:
            name = f"pod-{rng.randint(0, 5)}"
            asking = pod(name, *rng.sample([f"c{index}" for index in range(6)], rng.randint(1, 2)))
            decision = engine.schedule(asking)
            if name not in waiting and decision.node is not None and engine.assume(asking, decision.node).ok:
                waiting[name] = asking


def cached(engine: Engine, asking: Any) -> set[str] | None:
    """The nodes that the cached answers accept; None if the pod is refused as a whole."""
    profile = engine.profile(asking)
    answers = profile.answers(profile.shape(asking))
    if answers.prepared.refusal is not None:
        return None
    answers.values.refresh()
    accepted = answers.values.accepted()
    return {name for name, row in engine.tables.row_of.items() if accepted[row]}


@pytest.mark.parametrize("narrow", [0, 2, 64])
def test_cached_answers_equal_fresh_ones(narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_catalogue, "NARROW", narrow)
    rng = random.Random(narrow)
    probes = [pod("probe", f"c{index}") for index in range(6)] + [pod("probe", "c0", "c1"), pod("probe", "c2", "c3")]
    seen: set[bool] = set()
    for _ in range(12):
        engine = engine_with(
            *(node(f"n{index}", zone=f"z{index % 2 + 1}") for index in range(6)),
            storage_class("local"),
            storage_class("dynamic", "disk.example.com", topologies=rng.choice([None, [{ZONE: ["z1"]}]])),
            *([driver()] if rng.random() < 0.5 else []),
            *(some_volume(rng) for _ in range(6)),
            *(claim(f"c{index}", storage_class=rng.choice(CLASSES)) for index in range(6)),
        )
        waiting: dict[str, Any] = {}
        for _ in range(60):
            step(rng, engine, waiting)
            asking = rng.choice(probes)
            found, explained = cached(engine, asking), engine.explain(asking)
            assert (found is None) == (explained.pre_filter is not None)
            if found is not None:
                assert found == set(explained.scores)
                seen.add(bool(found))
            check_books(engine)
        for each in waiting.values():
            engine.forget(each)
        catalogue: VolumeCatalogue = engine.tables.shared["volumes"]
        assert not catalogue.plans and not catalogue._assumed_claims and not catalogue._assumed_nodes
        assert not catalogue.users and not engine.tables.shared["attachments"].used
    assert seen == {True, False}


def check_books(engine: Engine) -> None:
    """Incrementally updated state equals state computed from scratch."""
    catalogue: VolumeCatalogue = engine.tables.shared["volumes"]
    for kind, supply in catalogue._supplies.items():
        fresh = Supply(catalogue, kind)
        for each in catalogue.volumes.values():
            fresh.put(each)
        assert supply._groups == fresh._groups
        assert supply._others == fresh._others
        assert {key: values for key, values in supply._by_value.items() if values} == fresh._by_value
    attachments: Attachments = engine.tables.shared["attachments"]
    for row in engine.tables.rows.tolist():
        expected: dict[str, int] = {}
        used = {each for pod in engine.tables.pods_on[row].values() for each in attachments.volumes_of(pod.pod)}
        for name, _ in used | attachments.stated(row):
            expected[name] = expected.get(name, 0) + 1
        for name in attachments._counts:
            assert attachments.count(name).cells[row] == expected.get(name, 0)
