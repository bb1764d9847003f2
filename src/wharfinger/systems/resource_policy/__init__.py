"""ResourcePolicy: fills groups of nodes in order of priority, each up to a limit. Start with the README in this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.system import System

if TYPE_CHECKING:
    from wharfinger.api.configuration import Block
    from wharfinger.api.registry import Document, Kind, Resource
    from wharfinger.client.controller import Controller
    from wharfinger.contributions import ComparedKey, EmbeddedAccess, InstallComponent, ReportSection, Sample
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.framework.plugin import Plugin


class ResourcePolicySystem(System):
    name = "resource_policy"
    order = 20
    compared = "unit"

    def settings(self) -> type[Block]:
        from wharfinger.systems.resource_policy.settings import ResourcePolicySettings

        return ResourcePolicySettings

    def kinds(self) -> Sequence[Kind]:
        from wharfinger.systems.resource_policy.kinds import resource_policy

        return resource_policy.KINDS

    def plugins(self) -> Sequence[type[Plugin]]:
        from wharfinger.systems.resource_policy.plugin.resource_policy import ResourcePolicyPlugin

        return (ResourcePolicyPlugin,)

    def controllers(self) -> Mapping[str, Callable[[ControllerContext], Controller[Any]]]:
        from wharfinger.systems.resource_policy.controllers.resource_policy import ResourcePolicyController

        return {
            "resourcepolicy": ResourcePolicyController,
        }

    def report_kinds(self) -> Sequence[Resource]:
        from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES

        return (RESOURCE_POLICIES,)

    def report_sections(self, objects: Sequence[Document]) -> Sequence[ReportSection]:
        from wharfinger.systems.resource_policy.report import sections

        return sections(objects)

    def compared_state(
        self, objects: Callable[[Resource], Sequence[Document]]
    ) -> Mapping[ComparedKey, Mapping[str, Any]]:
        from wharfinger.systems.resource_policy.report import compared

        return compared(objects)

    def sample(self) -> Sample:
        from wharfinger.systems.resource_policy.report import SAMPLE

        return SAMPLE

    def embedded_access(self) -> EmbeddedAccess:
        from wharfinger.systems.resource_policy.install import EMBEDDED

        return EMBEDDED

    def install_component(self) -> InstallComponent:
        from wharfinger.systems.resource_policy.install import COMPONENT

        return COMPONENT


system = ResourcePolicySystem()
