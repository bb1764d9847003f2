"""Objects of a simulated cluster that are chosen by name or by label selector."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.registry import Registry, Resource
from wharfinger.api.selectors import BadSelector, Requirements, matches, parse_label_selector
from wharfinger.scenario.document import ObjectTarget
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import BadInput

EVERY_NAMESPACE = "*"
_OPERATORS = re.compile(r"[=!,() ]")  # in no name
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?|\*")


class ObjectChoice(msgspec.Struct, frozen=True):
    """Objects of one kind: the one of that name, or those that a selector matches."""

    resource: Resource
    namespace: str
    name: str
    selector: Requirements | None = None
    text: str = ""


def is_selector(text: str) -> bool:
    return _OPERATORS.search(text) is not None


def parse_choice(text: str, registry: Registry) -> ObjectChoice:
    """`KIND/NAME`, `KIND/NAMESPACE/NAME`, or the same with a label selector instead of the name. Raises BadInput."""
    word, _, rest = text.partition("/")
    kind = registry.find(word)
    if kind is None:
        raise BadInput([f'no kind is called "{word}"'])
    namespace = ""
    if kind.namespaced:
        first, slash, others = rest.partition("/")
        namespace = "default"
        # The prefix of a label key, such as `example.com/`, has dots; a namespace has none.
        if slash and (not is_selector(rest) or _NAMESPACE.fullmatch(first)):
            namespace, rest = first, others
    if is_selector(rest):
        return ObjectChoice(kind.storage, namespace, "", _parsed(rest), text)
    if not rest or not (namespace or not kind.namespaced) or "/" in rest or namespace == EVERY_NAMESPACE:
        form = "KIND/[NAMESPACE/]NAME" if kind.namespaced else "KIND/NAME"
        raise BadInput([f"want {form}, or a label selector instead of the name, not {text!r}"])
    return ObjectChoice(kind.storage, namespace, rest, None, text)


def chosen_objects(world: SimulatedCluster, choices: Iterable[ObjectChoice | ObjectTarget]) -> list[ObjectTarget]:
    """Raises BadInput if a selector matches nothing. An object that is chosen by name need not exist."""
    found: dict[ObjectTarget, None] = {}
    for choice in choices:
        if isinstance(choice, ObjectTarget):
            found[choice] = None
            continue
        if choice.selector is None:
            found[ObjectTarget(choice.resource, choice.namespace, choice.name)] = None
            continue
        matching = [
            ObjectTarget(choice.resource, stored.namespace, stored.name)
            for stored in world.store.scan(choice.resource)
            if choice.namespace in (EVERY_NAMESPACE, stored.namespace) and matches(choice.selector, stored.labels)
        ]
        if not matching:
            raise BadInput([f"nothing matches {choice.text}"])
        found.update(dict.fromkeys(matching))
    return list(found)


def chosen_nodes(world: SimulatedCluster, texts: Sequence[str]) -> list[str]:
    """The nodes of these names and selectors. Raises BadInput if a selector matches none."""
    choices = [
        ObjectChoice(NODES, "", "", _parsed(text), text) if is_selector(text) else ObjectChoice(NODES, "", text)
        for text in texts
    ]
    return [target.name for target in chosen_objects(world, choices)]


def _parsed(text: str) -> Requirements:
    try:
        return parse_label_selector(text)
    except BadSelector as error:
        raise BadInput([f"{text}: {error}"]) from error
