"""Reports DRA devices: those of ResourceClasses that name a driver, of DeviceClasses, and of drivers, free and used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from wharfinger.api.registry import Document
from wharfinger.devices.held_record import held_devices
from wharfinger.devices.selectors import BadSelectorExpression, SelectorError, device_selector
from wharfinger.devices.slices import DeviceContent
from wharfinger.framework.stand_ins import StandIn
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.plugin.report import ClassLine, NodeLine, ResourceLine
from wharfinger.systems.resource_class.rules.compute_resources import compute_resource_name
from wharfinger.systems.resource_class.rules.dra_devices import DeviceGroup, device_groups, driver_resource
from wharfinger.systems.resource_class.rules.properties import matches

DEVICE_CLASS = "DeviceClass"


def device_report(
    classes: Iterable[ResourceClass],
    device_classes: Iterable[Document],
    slices: Sequence[Document],
    claims: Iterable[Document],
    stand_ins: Iterable[StandIn] = (),
) -> list[ClassLine]:
    """ResourceClasses that name a driver, then DeviceClasses that are not theirs, then drivers, each sorted by name.
    `stand_ins` may hold devices for pods to come."""
    held = {each for stand_in in stand_ins for each in held_devices(stand_in.metadata.annotations)}
    groups = device_groups(slices, claims, held)
    named = sorted((each for each in classes if each.spec.driver), key=lambda each: each.name)
    lines = [
        _line(each.name, driver_resource(each.spec.driver), groups, class_matches(each), _free_units(each))
        for each in named
    ]
    for line, each in zip(lines, named):
        line.alias = each.alias
    kept = {each.name for each in named}
    contents = _contents(slices)
    for document in sorted(device_classes, key=lambda each: str(each["metadata"]["name"])):
        name = document["metadata"]["name"]
        if name not in kept:
            line = _line(name, DEVICE_CLASS, groups, _selected(document, contents))
            line.alias = (document.get("spec") or {}).get("extendedResourceName") or ""
            lines.append(line)
    for driver in sorted({group.driver for group in groups}):
        line = _line(driver_resource(driver), driver, [group for group in groups if group.driver == driver])
        line.is_class = False
        lines.append(line)
    return lines


GroupTest = Callable[[DeviceGroup], bool]
FreeUnits = Callable[[Iterable[DeviceGroup]], int]


def class_matches(each: ResourceClass) -> GroupTest:
    """Devices without the groupBy property are in no group."""
    spec, needed = each.spec, _group_by(each)

    def test(group: DeviceGroup) -> bool:
        if group.driver != spec.driver or (needed and needed not in group.properties):
            return False
        return matches(spec.selectors, group.properties)

    return test


def _group_by(each: ResourceClass) -> str:
    return each.spec.group_by.removeprefix(f"{each.spec.driver}/") if each.group_size > 1 else ""


def _free_devices(groups: Iterable[DeviceGroup]) -> int:
    return sum(group.free for group in groups)


def _free_units(each: ResourceClass) -> FreeUnits:
    """A unit takes free devices of one node with the same value of the groupBy property."""
    key = _group_by(each)
    if not key:
        return _free_devices

    def count(groups: Iterable[DeviceGroup]) -> int:
        by_value: Counter[str] = Counter()
        for group in groups:
            by_value[group.properties[key]] += group.free
        return sum(free // each.group_size for free in by_value.values())

    return count


def _line(
    name: str,
    raw: str,
    groups: Iterable[DeviceGroup],
    wanted: GroupTest | None = None,
    free_units: FreeUnits = _free_devices,
) -> ClassLine:
    by_node: dict[str, list[DeviceGroup]] = {}
    for group in groups:
        if wanted is None or wanted(group):
            by_node.setdefault(group.node, []).append(group)
    line = ClassLine(name, raw)
    for node, found in by_node.items():
        resources = tuple(
            ResourceLine(
                compute_resource_name(driver_resource(group.driver), group.properties),
                group.properties,
                len(group.devices),
                group.free,
            )
            for group in found
        )
        devices, used = sum(each.devices for each in resources), sum(group.used for group in found)
        reserved = sum(group.reserved for group in found)
        line.nodes.append(NodeLine(node, devices, used, free_units(found), resources, reserved))
    return line


def _contents(slices: Iterable[Document]) -> dict[tuple[str, str, str], DeviceContent]:
    found = {}
    for slice in slices:
        spec = slice.get("spec") or {}
        driver, pool = spec.get("driver") or "", (spec.get("pool") or {}).get("name") or ""
        for device in spec.get("devices") or ():
            found[driver, pool, device.get("name") or ""] = DeviceContent(
                driver,
                bool(device.get("allowMultipleAllocations")),
                device.get("attributes") or {},
                device.get("capacity") or {},
            )
    return found


def _selected(document: Document, contents: dict[tuple[str, str, str], DeviceContent]) -> GroupTest:
    """Whether all selectors of a DeviceClass select a group; one that ends in an error does not."""
    texts = [
        (each.get("cel") or {}).get("expression") or "" for each in (document.get("spec") or {}).get("selectors") or ()
    ]

    def test(group: DeviceGroup) -> bool:
        try:
            return all(device_selector(text).matches(contents[group.devices[0]]) for text in texts)
        except (BadSelectorExpression, SelectorError):
            return False

    return test
