"""Finds the pods that a selection matches, and the selections that match a pod, without looking at all of them.

Most selections ask for a label with one of few values in a few namespaces. Shapes are found by their namespace and
labels, and selections by one label that they require. Selections without such a label are compared one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from wharfinger.api.selectors import Operator
from wharfinger.framework.pod_selectors import PodSelector

if TYPE_CHECKING:
    from wharfinger.framework.counters import Counting
    from wharfinger.framework.shapes import Shape

LabelInNamespace = tuple[str, str, str]
"""(namespace, key, value) of a label."""

_MOST = 64  # labels under which a selection is entered; one with more is compared with everything


class PodSelection(msgspec.Struct, frozen=True):
    """Pods that meet every part: a set of namespaces (None for all) and a label selector."""

    parts: tuple[tuple[frozenset[str] | None, PodSelector], ...]
    ignore_terminating: bool = False

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return all(
            (namespaces is None or namespace in namespaces) and selector.matches(labels)
            for namespaces, selector in self.parts
        )

    def required_labels(self) -> Iterator[list[LabelInNamespace]]:
        """Lists of labels of which every matching pod has at least one."""
        for namespaces, selector in self.parts:
            if namespaces is None:
                continue
            for requirement in selector.requirements or ():
                values = requirement.values
                if requirement.operator is Operator.IN and len(namespaces) * len(values) <= _MOST:
                    yield [(name, requirement.key, value) for name in namespaces for value in values]


class ShapeIndex:
    """The shapes that have pods on nodes."""

    def __init__(self) -> None:
        self._shapes: dict[int, Shape] = {}
        self._by_label: dict[LabelInNamespace, dict[int, Shape]] | None = None  # made when it is first needed

    def add(self, shape: Shape) -> None:
        self._shapes[shape.number] = shape
        if self._by_label is not None:
            self._enter(shape, self._by_label)

    def remove(self, shape: Shape) -> None:
        del self._shapes[shape.number]
        if self._by_label is None:
            return
        for label in shape.labels.items():
            entry = (shape.namespace, *label)
            shapes = self._by_label[entry]
            del shapes[shape.number]
            if not shapes:
                del self._by_label[entry]

    def matching(self, selection: PodSelection) -> list[Shape]:
        return [shape for shape in self._candidates(selection) if selection.matches(shape.namespace, shape.labels)]

    def _candidates(self, selection: PodSelection) -> Collection[Shape]:
        if self._by_label is None:
            self._by_label = {}
            for shape in self._shapes.values():
                self._enter(shape, self._by_label)
        nothing: dict[int, Shape] = {}
        fewest: Collection[Shape] = self._shapes.values()
        for labels in selection.required_labels():
            found = [self._by_label.get(label, nothing) for label in labels]
            if sum(map(len, found)) < len(fewest):
                fewest = {number: shape for shapes in found for number, shape in shapes.items()}.values()
        return fewest

    def _enter(self, shape: Shape, by_label: dict[LabelInNamespace, dict[int, Shape]]) -> None:
        for label in shape.labels.items():
            by_label.setdefault((shape.namespace, *label), {})[shape.number] = shape


class SelectionIndex:
    """The counters in use, by a label that their selection requires."""

    def __init__(self) -> None:
        self._by_label: dict[LabelInNamespace, list[Counting]] = {}
        self._others: list[Counting] = []

    def add(self, counter: Counting) -> None:
        labels = next(counter.selection.required_labels(), None)
        if labels is None:
            self._others.append(counter)
        for label in labels or ():
            self._by_label.setdefault(label, []).append(counter)

    def remove(self, counter: Counting) -> None:
        labels = next(counter.selection.required_labels(), None)
        if labels is None:
            self._others.remove(counter)
        for label in labels or ():
            counters = self._by_label[label]
            counters.remove(counter)
            if not counters:
                del self._by_label[label]

    def matching(self, shape: Shape) -> list[Counting]:
        namespace, labels = shape.namespace, shape.labels
        found = [counter for counter in self._others if counter.selection.matches(namespace, labels)]
        for label in labels.items():
            for counter in self._by_label.get((namespace, *label), ()):
                if counter.selection.matches(namespace, labels):
                    found.append(counter)
        return found
