"""What can be installed: the scheduler, a component for each system, the dashboard, and dashboards for Grafana."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.contributions import InstallComponent, SystemProcess
from wharfinger.system import ordered_systems

_SCHEDULER = InstallComponent("scheduler", processes=("scheduler",))
DASHBOARD = InstallComponent("dashboard", processes=("dashboard",))
GRAFANA = InstallComponent("dashboards")  # for Grafana; no program


class UnknownComponent(ValueError):
    """No component has this name."""


def components() -> dict[str, InstallComponent]:
    """All components by name, in the order of their manifests."""
    found = [_SCHEDULER, *(system.installation().component for system in ordered_systems()), DASHBOARD, GRAFANA]
    return {component.name: component for component in found if component is not None}


def systems_of(chosen: Iterable[InstallComponent]) -> list[str]:
    """The names of the systems that these components bring, and of those that come without a component."""
    names = {component.name for component in chosen}
    own = ((system.name, system.installation().component) for system in ordered_systems())
    return [name for name, component in own if component is None or component.name in names]


def system_processes() -> dict[str, SystemProcess]:
    """The programs of the systems by name."""
    return {process.name: process for system in ordered_systems() for process in system.installation().processes}


def chosen(names: Iterable[str]) -> list[InstallComponent]:
    """The named components with those that they need, in the order of `components`; `all` names every one."""
    known = components()
    wanted = [name.strip() for name in names if name.strip()]
    for name in wanted:
        if name != "all" and name not in known:
            raise UnknownComponent(f'there is no component "{name}"; there are: {", ".join(known)}')
    found = set(known) if "all" in wanted else set(wanted)
    found |= {needed for name in found for needed in known[name].needs}
    return [component for component in known.values() if component.name in found]
