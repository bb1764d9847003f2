"""Scheduling policies in scenarios: policies and roles take effect with a delay on a running cluster."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from wharfinger.api.configuration import Configuration
from wharfinger.scenario.extension import ScenarioExtension
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.rules import shipped
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings


class SchedulingPolicyScenario(ScenarioExtension):
    slow_kinds = (SCHEDULING_POLICIES,)

    def shipped(self) -> Iterable[tuple[str, str, str]]:
        for document in (*shipped.roles(), *shipped.bindings(), *shipped.policies()):
            metadata = document["metadata"]
            yield document["kind"], str(metadata.get("namespace") or ""), metadata["name"]

    def comparable(self, wanted: Configuration, running: Configuration) -> Configuration:
        """The users as whom schedulers run make no difference."""
        identities = running.of(SchedulingPolicySettings).scheduler_identities
        return wanted.having(replace(wanted.of(SchedulingPolicySettings), scheduler_identities=identities))
