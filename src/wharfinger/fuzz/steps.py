"""The steps of a history in the two forms they need: a step of a Scenario to carry out, and its document to write down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from wharfinger.api.registry import Document, Resource
from wharfinger.scenario.document import Delete, ObjectTarget, Patch, ScenarioFault, ScenarioStep


@dataclass(slots=True)
class FuzzStep:
    at: float | None
    action: ScenarioStep
    label: str  # what it is, for statistics
    document: Document = field(default_factory=dict)
    refused: bool = False  # whether the API refused it, as it may

    @property
    def step(self) -> ScenarioStep:
        return replace(self.action, at=self.at, rejected="" if self.refused else None)

    def written(self) -> Document:
        """The step as a Scenario file has it."""
        found: Document = {} if self.at is None else {"at": f"{self.at:.3f}s"}
        found |= self.document
        if self.refused:
            found["rejected"] = ""
        return found


def applied(label: str, *documents: Document, user: str = "") -> FuzzStep:
    document: Document = {"apply": list(documents)}
    if user:
        document = {"as": user, **document}
    return FuzzStep(None, ScenarioStep(apply=documents, user=user), label, document)


def patched(label: str, resource: Resource, target: Document, merge: Document, subresource: str = "") -> FuzzStep:
    where, document = _target(resource, target)
    document["merge"] = merge
    if subresource:
        document["subresource"] = subresource
    return FuzzStep(None, ScenarioStep(patches=(Patch(where, merge, subresource),)), label, {"patch": document})


def deleted(label: str, resource: Resource, target: Document, grace_period: int | None = None) -> FuzzStep:
    where, document = _target(resource, target)
    if grace_period is not None:
        document["gracePeriodSeconds"] = grace_period
    return FuzzStep(None, ScenarioStep(deletes=(Delete(where, grace_period),)), label, {"delete": document})


def faulted(label: str, **fault: Any) -> FuzzStep:
    return disturbed(label, fault)


def disturbed(label: str, *faults: Document) -> FuzzStep:
    """Several faults at once."""
    documents = [{name: f"{value}s" if name == "delay" else value for name, value in fault.items()} for fault in faults]
    step = ScenarioStep(faults=tuple(ScenarioFault(**fault) for fault in faults))
    return FuzzStep(None, step, label, {"fault": documents if len(documents) > 1 else documents[0]})


def two_candidates() -> FuzzStep:
    return faulted("two candidates", standby="scheduler")


def separate_webhook() -> FuzzStep:
    return faulted("separate webhook", separate="webhook")


def rest() -> FuzzStep:
    """Faults end, everything settles, and what must hold at rest is checked."""
    return FuzzStep(None, ScenarioStep(), "rest", {"name": "rest"})


def waited() -> FuzzStep:
    """Only time passes."""
    return FuzzStep(0.0, ScenarioStep(), "wait", {"name": "wait"})


def _target(resource: Resource, target: Document) -> tuple[ObjectTarget, Document]:
    metadata = target["metadata"]
    namespace = str(metadata.get("namespace") or "")
    document: Document = {"apiVersion": resource.api_version, "kind": resource.kind, "name": metadata["name"]}
    if namespace:
        document["namespace"] = namespace
    return ObjectTarget(resource, namespace, str(metadata["name"])), document
