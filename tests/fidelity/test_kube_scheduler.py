"""Case by case against the answers of kube-scheduler: verdicts, reasons, scores, bindings of volumes, and preemption.

The version that answered is in the name of the file. `WHARF_FIDELITY_CASES` and `WHARF_PREEMPTION_CASES` name other files
of the same format to try instead; without a version in its name a file is taken for one of the reference version.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.views import Node, Pod, view
from wharfinger.engine import Engine, default_profile, known_plugins
from wharfinger.engine.outcome import NARROWED
from wharfinger.framework.status import SUCCESS
from wharfinger.plugins.volumes.catalogue import catalogue_of

CASES = Path(__file__).parent / "cases"
VOLUME_PLUGINS = ("VolumeBinding", "VolumeRestrictions", "VolumeZone", "NodeVolumeLimits")


def version_of(path: Path) -> KubernetesVersion:
    return next((each for each in KubernetesVersion if f"-{each}." in path.name), REFERENCE)


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


def engine_of(question: dict[str, Any], kubernetes: KubernetesVersion) -> Engine:
    """With the plugins that the cases were answered with: those for volumes only if the question has volumes."""
    left_out = [name for name, plugin in known_plugins().items() if plugin.ours]
    if "claims" not in question:
        left_out += VOLUME_PLUGINS
    engine = Engine([default_profile(without=left_out, kubernetes=kubernetes)], kubernetes=kubernetes)
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


def verdicts(question: dict[str, Any], kubernetes: KubernetesVersion) -> dict[str, Any]:
    answer = engine_of(question, kubernetes).explain(view(question["pod"], Pod)).document()
    for node in answer["nodes"].values():
        if node.get("plugin") == NARROWED:
            del node["reasons"]  # the cases have none here
    return answer


def preemption(question: dict[str, Any], kubernetes: KubernetesVersion) -> dict[str, Any]:
    engine, pod = engine_of(question, kubernetes), view(question["pod"], Pod)
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
    return {**verdicts(question, kubernetes), "preemption": answer}


def message(question: dict[str, Any], kubernetes: KubernetesVersion) -> str:
    """What a pod that goes nowhere is told, after preemption was tried."""
    engine, pod = engine_of(question, kubernetes), view(question["pod"], Pod)
    decision = engine.schedule(pod)
    if decision.diagnosis is not None:
        engine.preempt(pod, decision.diagnosis)
    return decision.message


def reserved(question: dict[str, Any], nodes: list[str], kubernetes: KubernetesVersion) -> dict[str, Any]:
    """What would be written for the claims of the pod on each of the feasible nodes."""
    engine, pod = engine_of(question, kubernetes), view(question["pod"], Pod)
    catalogue = catalogue_of(engine.tables)
    found = {}
    for name in nodes:
        assert engine.assume(pod, name) == SUCCESS
        plan = catalogue.plans.get(pod.metadata.key)
        bindings: dict[str, list[str]] = {}
        for volume, claim in plan.bindings if plan else ():
            bindings.setdefault(claim.metadata.name, []).append(volume)
        written: dict[str, Any] = {claim: sorted(volumes) for claim, volumes in sorted(bindings.items())}
        provisions = sorted(claim.metadata.name for claim in plan.provisions) if plan else []
        found[name] = {key: value for key, value in (("bindings", written), ("provision", provisions)) if value}
        engine.forget(pod)
    return found


def pre_enqueue(question: dict[str, Any], kubernetes: KubernetesVersion) -> str | None:
    status = engine_of(question, kubernetes).pre_enqueue(view(question["pod"], Pod))
    return None if status.ok else f"{status.plugin}: {status.message}"


def beside(case: dict[str, Any], kubernetes: KubernetesVersion) -> str:
    """A difference in what stands beside the answer: the message, the reservation of volumes, the entry into the queue."""
    told, question = case["answer"].get("message"), case["question"]
    if told and (said := message(question, kubernetes)) != told:
        return f"{said!r} instead of {told!r}"
    if "claims" in question and (held := pre_enqueue(question, kubernetes)) != case.get("preenqueue"):
        return f"{held!r} instead of {case.get('preenqueue')!r} before the queue"
    wanted = case.get("reserve")
    if wanted is not None and (made := reserved(question, list(wanted), kubernetes)) != wanted:
        return f"reserved {made} instead of {wanted}"
    return ""


NAMESAKES = {"kube-scheduler-volumes-preemption-1.37.1.jsonl.gz": 6, "volumes-minimal-1.36.4.jsonl.gz": 1}
"""The number of cases in which upstream evicts a pod for nothing: see `names_the_same_claim_elsewhere`."""


def names_the_same_claim_elsewhere(question: dict[str, Any]) -> bool:
    """Whether a pod of another namespace names a claim like a ReadWriteOncePod claim of the pending pod.

    Upstream compares only the names when it imagines that pods are evicted (conflictingPVCRefCountForPod), and so takes a
    claim for free that is still in use.
    """
    namespace = question["pod"]["metadata"]["namespace"]
    exclusive = {
        claim["metadata"]["name"]
        for claim in question.get("claims") or ()
        if claim["metadata"]["namespace"] == namespace and "ReadWriteOncePod" in claim["spec"]["accessModes"]
    }
    return any(
        volume.get("persistentVolumeClaim", {}).get("claimName") in exclusive
        for pod in question.get("pods") or ()
        if pod["metadata"]["namespace"] != namespace
        for volume in pod["spec"].get("volumes") or ()
    )


def differences(path: Path) -> tuple[int, list[str]]:
    agreeing, found = 0, []
    namesakes = 0
    kubernetes = version_of(path)
    for number, case in enumerate(read(path), start=1):
        theirs = expected(case["answer"])
        ours = (preemption if "preemption" in theirs else verdicts)(case["question"], kubernetes)
        if difference := beside(case, kubernetes):
            found.append(f"case {number}: {difference}")
            continue
        if ours == theirs or same_refusal(ours, theirs):
            agreeing += 1
            continue
        if {**ours, "preemption": None} == {**theirs, "preemption": None} and names_the_same_claim_elsewhere(
            case["question"]
        ):
            namesakes += 1
            continue
        for name in {*theirs["nodes"], *ours["nodes"]}:
            if ours["nodes"].get(name) != theirs["nodes"].get(name):
                found.append(f"case {number}, {name}: {ours['nodes'].get(name)} instead of {theirs['nodes'].get(name)}")
                break
        else:
            rest = {key: (ours.get(key), theirs.get(key)) for key in {*ours, *theirs} - {"nodes"}}
            found.append(f"case {number}: {rest}")
    assert namesakes == NAMESAKES.get(path.name, namesakes)
    return agreeing, found


def same_refusal(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether both refuse the pod as a whole, by the same plugin, for the same reason or with the same code."""
    if (
        not theirs.get("prefilter")
        or theirs["nodes"]
        or ours["nodes"]
        or (ours.get("plugin") or None) != theirs.get("plugin")
    ):
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
        "kube-scheduler-1.37.1.jsonl.gz",
        "kube-scheduler-extras-1.37.1.jsonl.gz",
        "kube-scheduler-changes-1.37.1.jsonl.gz",
        "kube-scheduler-volumes-1.37.1.jsonl.gz",
    ),
    ids=lambda path: path.name,
)
def test_every_node_gets_the_verdict_and_scores_of_kube_scheduler(path: Path) -> None:
    agreeing, found = differences(path)
    print(f"{path.name}: {agreeing} of {agreeing + len(found)} cases agree")
    assert not found, f"{agreeing} of {agreeing + len(found)} agree; the first differences:\n" + "\n".join(found[:5])


@pytest.mark.parametrize(
    "path",
    files(
        "WHARF_PREEMPTION_CASES",
        "kube-scheduler-preemption-1.36.4.jsonl.gz",
        "found-1.36.4.jsonl.gz",
        "volumes-minimal-1.36.4.jsonl.gz",
        "kube-scheduler-preemption-1.37.1.jsonl.gz",
        "kube-scheduler-budgets-1.37.1.jsonl.gz",
        "kube-scheduler-volumes-preemption-1.37.1.jsonl.gz",
    ),
    ids=lambda path: path.name,
)
def test_preemption_finds_the_candidates_victims_and_choice_of_kube_scheduler(path: Path) -> None:
    agreeing, found = differences(path)
    print(f"{path.name}: {agreeing} of {agreeing + len(found)} cases agree")
    assert not found, f"{agreeing} of {agreeing + len(found)} agree; the first differences:\n" + "\n".join(found[:5])
