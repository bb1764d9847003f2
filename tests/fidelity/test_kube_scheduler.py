"""Case by case against the answers of kube-scheduler v1.36.4: verdicts, reasons, scores, and preemption.

`WHARF_FIDELITY_CASES` and `WHARF_PREEMPTION_CASES` name other files of the same format to try instead.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wharfinger.api.views import Node, Pod, view
from wharfinger.engine import Engine, default_profile, known_plugins
from wharfinger.engine.outcome import NARROWED

CASES = Path(__file__).parent / "cases"
PROFILE = default_profile(without=[name for name, plugin in known_plugins().items() if plugin.ours])
"""The plugins the cases were answered with."""


def read(path: Path) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
        if line.strip():
            yield msgspec.json.decode(line)


def files(variable: str, *names: str) -> list[Path]:
    given = os.environ.get(variable)
    return [Path(given)] if given else [CASES / name for name in names]


KINDS = {
    "namespaces": "Namespace",
    "services": "Service",
    "replicaSets": "ReplicaSet",
    "statefulSets": "StatefulSet",
    "replicationControllers": "ReplicationController",
    "budgets": "PodDisruptionBudget",
    "classes": "StorageClass",
    "volumes": "PersistentVolume",
    "claims": "PersistentVolumeClaim",
    "csiNodes": "CSINode",
    "csiDrivers": "CSIDriver",
    "capacities": "CSIStorageCapacity",
    "attachments": "VolumeAttachment",
}
"""What a question may hold beside nodes and pods."""


def engine_of(question: dict[str, Any]) -> Engine:
    engine = Engine([PROFILE])
    for node in question["nodes"]:
        engine.set_node(view(node, Node))
    for field, kind in KINDS.items():
        for document in question.get(field) or ():
            engine.apply(kind, document)
    for document in question.get("pods") or ():
        pod = view(document, Pod)
        if pod.spec.node_name:
            engine.set_pod(pod)
        elif pod.status.nominated_node_name and not pod.terminal:
            engine.set_nominated(pod, pod.status.nominated_node_name)
    return engine


def verdicts(question: dict[str, Any]) -> dict[str, Any]:
    answer = engine_of(question).explain(view(question["pod"], Pod)).document()
    for node in answer["nodes"].values():
        if node.get("plugin") == NARROWED:
            del node["reasons"]  # the cases have none here
    return answer


def preemption(question: dict[str, Any]) -> dict[str, Any]:
    engine, pod = engine_of(question), view(question["pod"], Pod)
    result = engine.preempt(pod)
    answer: dict[str, Any] = {"eligible": result.eligible}
    if not result.eligible:
        answer["message"] = result.message
    if result.candidates:
        answer["candidates"] = {
            name: {
                "victims": sorted(victim.metadata.name for victim in candidate.victims),
                "violations": candidate.violations,
            }
            for name, candidate in result.candidates.items()
        }
        answer["chosen"] = result.chosen
    return {**verdicts(question), "preemption": answer}


def message(question: dict[str, Any]) -> str:
    """What a pod that goes nowhere is told, after preemption was tried."""
    engine, pod = engine_of(question), view(question["pod"], Pod)
    decision = engine.schedule(pod)
    if decision.diagnosis is not None:
        engine.preempt(pod, decision.diagnosis)
    return decision.message


def differences(path: Path) -> tuple[int, list[str]]:
    agreeing, found = 0, []
    for number, case in enumerate(read(path), start=1):
        theirs = expected(case["answer"])
        ours = (preemption if "preemption" in theirs else verdicts)(case["question"])
        told = case["answer"].get("message")
        if told and (said := message(case["question"])) != told:
            found.append(f"case {number}: {said!r} instead of {told!r}")
            continue
        if ours == theirs or same_refusal(ours, theirs):
            agreeing += 1
            continue
        for name in {*theirs["nodes"], *ours["nodes"]}:
            if ours["nodes"].get(name) != theirs["nodes"].get(name):
                found.append(f"case {number}, {name}: {ours['nodes'].get(name)} instead of {theirs['nodes'].get(name)}")
                break
        else:
            rest = {key: (ours.get(key), theirs.get(key)) for key in {*ours, *theirs} - {"nodes"}}
            found.append(f"case {number}: {rest}")
    return agreeing, found


def same_refusal(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether both refuse the pod as a whole, by the same plugin, for the same reason or with the same code."""
    if not theirs.get("prefilter") or theirs["nodes"] or ours["nodes"] or ours.get("plugin") != theirs.get("plugin"):
        return False
    return theirs["prefilter"] in (True, ours["prefilter"], ours["code"], ours["reasons"])


def expected(answer: dict[str, Any]) -> dict[str, Any]:
    left_out = ("message", "code", "error")  # compared by themselves, or not at all
    answer = {key: value for key, value in answer.items() if value is not None and key not in left_out}
    if "preemption" in answer:
        given = answer["preemption"]
        kept = {key: given[key] for key in ("eligible", "message", "candidates", "chosen") if given.get(key)}
        answer["preemption"] = {**kept, "eligible": bool(given.get("eligible"))}
        if answer["preemption"]["eligible"]:
            answer["preemption"].pop("message", None)
    return answer


@pytest.mark.parametrize(
    "path",
    files(
        "WHARF_FIDELITY_CASES",
        "kube-scheduler-1.36.4.jsonl.gz",
        "kube-scheduler-extras-1.36.4.jsonl.gz",
        "volumes-1.36.4.jsonl.gz",
    ),
    ids=lambda path: path.name,
)
def test_every_node_gets_the_verdict_and_scores_of_kube_scheduler(path: Path) -> None:
    agreeing, found = differences(path)
    print(f"{path.name}: {agreeing} of {agreeing + len(found)} cases agree")
    assert not found, f"{agreeing} of {agreeing + len(found)} agree; the first differences:\n" + "\n".join(found[:5])


@pytest.mark.parametrize(
    "path",
    files("WHARF_PREEMPTION_CASES", "kube-scheduler-preemption-1.36.4.jsonl.gz", "found-1.36.4.jsonl.gz"),
    ids=lambda path: path.name,
)
def test_preemption_finds_the_candidates_victims_and_choice_of_kube_scheduler(path: Path) -> None:
    agreeing, found = differences(path)
    print(f"{path.name}: {agreeing} of {agreeing + len(found)} cases agree")
    assert not found, f"{agreeing} of {agreeing + len(found)} agree; the first differences:\n" + "\n".join(found[:5])
