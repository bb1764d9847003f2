"""Questions about volumes that change: what is kept from one decision to the next is what would be computed afresh."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from tests.fidelity.test_kube_scheduler import CASES, engine_of, read

from wharfinger.api.kubernetes_version import REFERENCE
from wharfinger.api.views import Pod, view
from wharfinger.engine import Engine


def has_a_volume_meant_for_it(question: dict[str, Any]) -> bool:
    """Whether a volume has a claimRef to a claim of the pending pod, which is not bound yet."""
    named = {volume.get("persistentVolumeClaim", {}).get("claimName") for volume in question["pod"]["spec"]["volumes"]}
    return any(
        volume["status"]["phase"] == "Available" and (volume["spec"].get("claimRef") or {}).get("name") in named
        for volume in question["volumes"]
    )


RECORDED = [case["question"] for case in read(CASES / "kube-scheduler-volumes-1.37.1.jsonl.gz")]
QUESTIONS = [*RECORDED[:40], *(question for question in RECORDED if has_a_volume_meant_for_it(question))]
SIZES = ("1Gi", "4Gi", "9Gi", "50Gi")


def change(engine: Engine, question: dict[str, Any], rng: random.Random) -> None:
    kind, field = rng.choice(
        (
            ("CSIStorageCapacity", "capacities"),
            ("PersistentVolume", "volumes"),
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
    engine.apply(kind, document, deleted=kind in ("PersistentVolume", "CSINode") and rng.random() < 0.1)


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
