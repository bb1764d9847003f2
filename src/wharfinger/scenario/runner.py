"""Runs the steps of a scenario on a stage: sends requests, lets time pass, checks expectations.

A stage is a simulated control plane (`wharfinger.simulate.cluster`) or a running cluster
(`wharfinger.scenario.running`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from wharfinger.api.errors import ApiError, Invalid
from wharfinger.api.fields import FieldError
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.client.interface import Client
from wharfinger.scenario import applying
from wharfinger.scenario.document import Expectation, Scenario, ScenarioFault, ScenarioStep
from wharfinger.scenario.expectations import ExpectationOutcome


class Rejection(msgspec.Struct, frozen=True):
    """A request that the API refused."""

    kind: str
    namespace: str
    name: str
    user: str
    message: str
    expected: bool = False
    faults: tuple[FieldError, ...] = ()  # if the object itself is invalid: what is wrong, by field


class Results(msgspec.Struct):
    rejections: list[Rejection] = msgspec.field(default_factory=list)
    outcomes: list[tuple[str, ExpectationOutcome]] = msgspec.field(
        default_factory=list
    )  # position in the scenario, and outcome
    failures: list[tuple[str, str]] = msgspec.field(default_factory=list)  # steps that did not go as stated

    @property
    def ok(self) -> bool:
        return not self.failures and all(outcome.ok for _, outcome in self.outcomes)


class Stage(Protocol):
    """Where a scenario runs."""

    registry: Registry

    def client(self, user: str, on_warning: Callable[[str], None]) -> Client:
        """A client whose requests are made by `user` (empty: the administrator)."""
        ...

    async def advance(self, moment: float) -> None:
        """Lets time pass until `moment` seconds after the start."""
        ...

    async def settle(self) -> None:
        """Lets time pass until nothing changes any more."""
        ...

    async def fault(self, fault: ScenarioFault) -> None: ...

    async def expect(self, expectations: Sequence[Expectation]) -> list[ExpectationOutcome]:
        """Checks each, waiting as long as it allows."""
        ...


class StepWatcher(Protocol):
    """Checks what must hold after every step of a scenario, and at its end. Returns what does not hold, as sentences."""

    async def after_step(self, step: ScenarioStep) -> list[str]: ...

    async def finish(self) -> list[str]: ...


async def run(scenario: Scenario, stage: Stage, results: Results, watcher: StepWatcher | None = None) -> None:
    where = "steps"
    for index, step in enumerate(scenario.steps):
        where = f"steps[{index}]"
        await run_step(step, where, stage, results)
        if watcher is not None:
            results.failures += [(where, problem) for problem in await watcher.after_step(step)]
    if watcher is not None:
        results.failures += [(where, problem) for problem in await watcher.finish()]


async def run_step(step: ScenarioStep, where: str, stage: Stage, results: Results) -> None:
    if step.at is None:
        await stage.settle()
    else:
        await stage.advance(step.at)
    await _act(step, where, stage, results)
    if step.expect and step.acts:
        await stage.settle()
    for number, outcome in enumerate(await stage.expect(step.expect)):
        results.outcomes.append((f"{where}.expect[{number}]", outcome))


async def _act(step: ScenarioStep, where: str, stage: Stage, results: Results) -> None:
    warnings: list[str] = []
    client = stage.client(step.user, warnings.append)
    refused: list[Rejection] = []
    for document in step.apply:
        refused += await request(document, step.user, applying.apply(client, document, stage.registry))
    for patch in step.patches:
        target = patch.target
        refused += await request(
            _reference(target.resource, target.namespace, target.name),
            step.user,
            applying.patch(
                client,
                target.resource,
                target.name,
                target.namespace,
                patch.merge,
                stage.registry,
                subresource=patch.subresource,
            ),
        )
    for delete in step.deletes:
        target = delete.target
        refused += await request(
            _reference(target.resource, target.namespace, target.name),
            step.user,
            client.delete(target.resource, target.name, target.namespace, grace_period=delete.grace_period),
        )
    for fault in step.faults:
        try:
            await stage.fault(fault)
        except ApiError as error:
            results.failures.append((where, f"the fault cannot be brought about: {error.message}"))
    _judge(step, where, refused, warnings, results)


def _judge(
    step: ScenarioStep, where: str, refused: Sequence[Rejection], warnings: Sequence[str], results: Results
) -> None:
    expected = step.rejected is not None
    results.rejections += [
        Rejection(item.kind, item.namespace, item.name, item.user, item.message, expected) for item in refused
    ]
    if step.rejected is None:
        for item in refused:
            results.failures.append((where, refusal(item)))
    elif not refused:
        results.failures.append((where, f"expected a refusal with {step.rejected!r}, but every request was accepted"))
    else:
        for item in refused:
            if step.rejected not in item.message:
                results.failures.append(
                    (
                        where,
                        f"expected a refusal with {step.rejected!r}, but {item.kind} {item.name} was refused with: {item.message}",
                    )
                )
    if step.warned is not None and not any(step.warned in warning for warning in warnings):
        told = "; ".join(warnings) or "there was no warning"
        results.failures.append((where, f"expected a warning with {step.warned!r}: {told}"))


async def request(document: Document, user: str, call: Awaitable[Any]) -> list[Rejection]:
    """Sends one request; returns the refusal, if any."""
    try:
        await call
    except ApiError as error:
        metadata = document.get("metadata") or {}
        name = str(metadata.get("name") or metadata.get("generateName") or "")
        kind, namespace = str(document.get("kind")), str(metadata.get("namespace") or "")
        return [Rejection(kind, namespace, name, user, error.message, faults=_field_faults(error))]
    return []


def _field_faults(error: ApiError) -> tuple[FieldError, ...]:
    """What validation found wrong with the object. A policy that denies a request names no fields."""
    causes = error.details.get("causes") or () if isinstance(error, Invalid) else ()
    return tuple(
        FieldError(cause["field"], cause.get("reason", ""), cause.get("message", ""))
        for cause in causes
        if cause.get("field")
    )


def refusal(item: Rejection) -> str:
    """An unexpected refusal as a sentence."""
    name = f"{item.namespace}/{item.name}" if item.namespace else item.name
    return f"the API refused {item.kind} {name}: {item.message}"


def _reference(resource: Resource, namespace: str, name: str) -> Document:
    return {"kind": resource.kind, "metadata": {"namespace": namespace, "name": name}}
