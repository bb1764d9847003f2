"""What a system adds to the running of scenarios, in a simulation and on a running cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from wharfinger.system import ordered_systems

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.api.registry import Document, Resource
    from wharfinger.api.requests import ApiRequest
    from wharfinger.client.interface import Client
    from wharfinger.scenario.document import Scenario, ScenarioFault
    from wharfinger.scenario.running.client import Footprint


class BindingRequest(NamedTuple):
    """A request that gives an object a node, as the rule of an admission webhook names it."""

    group: str
    version: str
    resource: str
    operation: str


class ScenarioExtension:
    """Base of all extensions. There is one instance for each scenario; every method has a default that adds nothing."""

    slow_kinds: ClassVar[Collection[Resource]] = ()
    """Kinds whose objects take effect with a delay on a running cluster."""

    binding_requests: ClassVar[Sequence[BindingRequest]] = ()
    """Requests other than the binding of pods that give an object a node."""

    # -- simulation

    def binds(self, request: ApiRequest[Any]) -> bool:
        """Whether a request other than the binding of a pod gives an object a node."""
        return False

    async def simulate_fault(self, fault: ScenarioFault, client: Client, now: float) -> None:
        """Lets a fault happen in a simulation."""

    # -- what a scenario means on a running cluster, told by the scenario alone

    def why_not(self, scenario: Scenario) -> str:
        """Why a scenario cannot be played on a running cluster; empty if it can."""
        return ""

    def has_times_of_day(self, document: Document) -> bool:
        """Whether a document has times of day, so that the scenario can be moved by whole minutes only."""
        return False

    def moved(self, document: Document, seconds: float) -> Document:
        """A document with its times of day moved; other times are moved already."""
        return document

    def shipped(self) -> Iterable[tuple[str, str, str]]:
        """Kind, namespace and name of objects that our programs create and restore."""
        return ()

    def comparable(self, wanted: Configuration, running: Configuration) -> Configuration:
        """The configuration that a scenario wants, with settings that make no difference to it taken from what runs."""
        return wanted

    # -- a scenario that is played on a running cluster

    def open(self, client: Client, footprint: Footprint, documents: Sequence[Document]) -> None:
        """Called first: `documents` are all that the scenario applies, `client` is the administrator's."""

    def unmet(self, documents: Sequence[Document], configuration: Configuration) -> str:
        """Why a real API server would refuse some of the documents; empty if it would not."""
        return ""

    def expected(self, scenario: Scenario) -> Scenario:
        """The scenario with its expectations in the form that `observed` and `text` give to what the cluster shows."""
        return scenario

    def observed(self, document: Document) -> Document:
        """An object of the cluster as an embedded API server would show it."""
        return document

    def text(self, text: str) -> str:
        """A message of the cluster in the scenario's own names."""
        return text

    async def created(self, resource: Resource, document: Document) -> None:
        """Called after the scenario created an object."""

    async def patching(self, resource: Resource, name: str, patch: Any) -> Any:
        """The patch to send in place of the scenario's."""
        return patch

    async def fault(self, fault: ScenarioFault) -> None:
        """Lets a fault happen."""

    async def close(self) -> None:
        """Called before the scenario's objects are deleted."""


class Extensions(ScenarioExtension):
    """The extensions of all enabled systems, as one."""

    def __init__(self) -> None:
        found = (system.scenario_extension() for system in ordered_systems())
        self._parts = [extension for extension in found if extension is not None]

    def all_slow_kinds(self) -> set[Resource]:
        return {kind for part in self._parts for kind in part.slow_kinds}

    def all_binding_requests(self) -> list[BindingRequest]:
        return [request for part in self._parts for request in part.binding_requests]

    def binds(self, request: ApiRequest[Any]) -> bool:
        return any(part.binds(request) for part in self._parts)

    async def simulate_fault(self, fault: ScenarioFault, client: Client, now: float) -> None:
        for part in self._parts:
            await part.simulate_fault(fault, client, now)

    def why_not(self, scenario: Scenario) -> str:
        return next((reason for part in self._parts if (reason := part.why_not(scenario))), "")

    def has_times_of_day(self, document: Document) -> bool:
        return any(part.has_times_of_day(document) for part in self._parts)

    def moved(self, document: Document, seconds: float) -> Document:
        for part in self._parts:
            document = part.moved(document, seconds)
        return document

    def shipped(self) -> Iterable[tuple[str, str, str]]:
        return [each for part in self._parts for each in part.shipped()]

    def comparable(self, wanted: Configuration, running: Configuration) -> Configuration:
        for part in self._parts:
            wanted = part.comparable(wanted, running)
        return wanted

    def open(self, client: Client, footprint: Footprint, documents: Sequence[Document]) -> None:
        for part in self._parts:
            part.open(client, footprint, documents)

    def unmet(self, documents: Sequence[Document], configuration: Configuration) -> str:
        return next((reason for part in self._parts if (reason := part.unmet(documents, configuration))), "")

    def expected(self, scenario: Scenario) -> Scenario:
        for part in self._parts:
            scenario = part.expected(scenario)
        return scenario

    def observed(self, document: Document) -> Document:
        for part in self._parts:
            document = part.observed(document)
        return document

    def text(self, text: str) -> str:
        for part in self._parts:
            text = part.text(text)
        return text

    async def created(self, resource: Resource, document: Document) -> None:
        for part in self._parts:
            await part.created(resource, document)

    async def patching(self, resource: Resource, name: str, patch: Any) -> Any:
        for part in self._parts:
            patch = await part.patching(resource, name, patch)
        return patch

    async def fault(self, fault: ScenarioFault) -> None:
        for part in self._parts:
            await part.fault(fault)

    async def close(self) -> None:
        for part in self._parts:
            await part.close()
