"""Questions about volumes that change: what is kept from one decision to the next is what would be computed afresh."""

from __future__ import annotations

import copy
import random
from itertools import islice
from typing import Any

import pytest
from tests.fidelity.test_kube_scheduler import CASES, engine_of, read

from wharfinger.api.kubernetes_version import REFERENCE
from wharfinger.api.views import Pod, view
from wharfinger.engine import Engine

QUESTIONS = [case["question"] for case in islice(read(CASES / "kube-scheduler-volumes-1.37.1.jsonl.gz"), 80, 160)]
SIZES = ("1Gi", "4Gi", "9Gi", "50Gi")


def change(engine: Engine, question: dict[str, Any], rng: random.Random) -> None:
    kind, field = rng.choice(
        (
            ("CSIStorageCapacity", "capacities"),
            ("PersistentVolume", "volumes"),
            ("CSINode", "csiNodes"),
            ("CSIDriver", "csiDrivers"),
        )
    )
    if not question[field]:
        return
    document = copy.deepcopy(rng.choice(question[field]))
    document["metadata"]["resourceVersion"] = str(rng.random())
    if kind == "CSIStorageCapacity":
        document["capacity"] = rng.choice(SIZES)
    elif kind == "PersistentVolume":
        document["spec"]["capacity"] = {"storage": rng.choice(SIZES)}
    elif kind == "CSIDriver":
        document["spec"] |= {"storageCapacity": rng.random() < 0.7, "preventPodSchedulingIfMissing": rng.random() < 0.5}
    engine.apply(kind, document, deleted=kind in ("PersistentVolume", "CSINode") and rng.random() < 0.3)


@pytest.mark.parametrize("seed", range(2))
def test_the_best_node_is_chosen_after_any_change(seed: int) -> None:
    rng, decided = random.Random(seed), 0
    for number, question in enumerate(QUESTIONS):
        engine, pod = engine_of(question, REFERENCE), view(question["pod"], Pod)
        for _ in range(5):
            decision, nodes = engine.schedule(pod), engine.explain(pod).document()["nodes"]
            if not decision.error:
                totals = {name: each["total"] for name, each in nodes.items() if "scores" in each}
                best = {name for name, total in totals.items() if total == max(totals.values())} or {None}
                assert decision.node in best, f"question {number}: {totals}"
                decided += len(totals) > 1
            change(engine, question, rng)
    assert decided > 50
