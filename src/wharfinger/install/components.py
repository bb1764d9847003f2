"""What can be installed: for each component its kinds, its controllers, and whose controllers do the same work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wharfinger.api.groups import SIGS
from wharfinger.systems.placement.kinds.names import OCM
from wharfinger.systems.reservation.kinds.names import KOORDINATOR

WHARFINGER = "wharfinger.dev"


@dataclass(frozen=True, slots=True)
class Component:
    """`kinds` are group and plural; `processes` are the Deployments it needs; `rivals` are names of foreign programs."""

    name: str
    kinds: tuple[tuple[str, str], ...] = ()
    controllers: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()


COMPONENTS = {
    component.name: component
    for component in (
        Component("scheduler", processes=("scheduler",)),
        Component(
            "reservation",
            ((KOORDINATOR, "reservations"), (KOORDINATOR, "podmigrationjobs"), (WHARFINGER, "reservationsets")),
            ("reservation", "reservationset", "podmigration", "reservedquota"),
            ("controllers", "webhook"),
            needs=("scheduler",),
            rivals=("koord-scheduler", "koord-manager", "koord-descheduler"),
        ),
        Component(
            "resource-policy",
            ((SIGS, "resourcepolicies"),),
            ("resourcepolicy",),
            ("controllers", "webhook"),
            needs=("scheduler",),
        ),
        Component(
            "resource-class",
            ((SIGS, "resourceclasses"), (SIGS, "nodecomputeresources")),
            ("resourceclass",),
            ("controllers", "webhook"),
            needs=("scheduler",),
        ),
        Component(
            "placement",
            tuple(
                (OCM, plural)
                for plural in (
                    "managedclusters",
                    "managedclustersets",
                    "managedclustersetbindings",
                    "placements",
                    "placementdecisions",
                    "addonplacementscores",
                )
            ),
            (),  # a process of its own runs them
            ("placement", "webhook"),
            rivals=(
                "cluster-manager-placement-controller",
                "cluster-manager-registration-controller",
                "placement-controller",
                "registration-controller",
            ),
        ),
        Component(
            "scheduling-policy", ((SIGS, "schedulingpolicies"),), ("schedulingpolicy",), ("controllers", "webhook")
        ),
    )
}


class UnknownComponent(ValueError):
    """A name that is not in the list."""


def chosen(names: Iterable[str]) -> list[Component]:
    """The named components with those that they need, in the order of the list; `all` names every one."""
    wanted = [name.strip() for name in names if name.strip()]
    for name in wanted:
        if name != "all" and name not in COMPONENTS:
            raise UnknownComponent(f'there is no component "{name}"; there are: {", ".join(COMPONENTS)}')
    found = set(COMPONENTS) if "all" in wanted else set(wanted)
    found |= {needed for name in found for needed in COMPONENTS[name].needs}
    return [component for component in COMPONENTS.values() if component.name in found]
