"""Profiles: the plugins that serve one scheduler name, and what they prepared for pod shapes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import msgspec

from wharfinger.api.fields import FieldError, describe
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.views import Pod
from wharfinger.engine.answers import Answers
from wharfinger.engine.cohort import Cohorts
from wharfinger.engine.registry import known_plugins
from wharfinger.framework.plugin import EXTENSION_POINTS, Args, Plugin
from wharfinger.framework.shapes import Shape, Shapes
from wharfinger.framework.tables import Tables

DEFAULT_NAME = "default-scheduler"


class BadArguments(ValueError):
    """The arguments of a plugin are invalid; has every error with its path."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__(describe(errors))
        self.errors = errors


class ProfileSpec(msgspec.Struct, frozen=True):
    """One scheduler name: the plugins at each extension point, in order, their score weights and arguments."""

    scheduler_name: str
    points: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, int] = msgspec.field(default_factory=dict)
    args: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)


def default_profile(
    scheduler_name: str = DEFAULT_NAME,
    *,
    without: Iterable[str] = (),
    extra: Iterable[type[Plugin]] = (),
    weights: Mapping[str, int] | None = None,
    args: Mapping[str, Mapping[str, Any]] | None = None,
    kubernetes: KubernetesVersion = REFERENCE,
) -> ProfileSpec:
    """All plugins that are enabled by default, in their default order, then the `extra` classes."""
    classes = [each for name, each in known_plugins(kubernetes).items() if each.enabled and name not in set(without)]
    classes += [each for each in extra if each not in classes]
    return ProfileSpec(
        scheduler_name,
        {point: tuple(each.name for each in classes if point in each.points) for point in EXTENSION_POINTS},
        {each.name: each.weight for each in classes} | dict(weights or {}),
        args or {},
    )


def read_args(
    plugin: type[Plugin], given: Mapping[str, Any], path: str = "", kubernetes: KubernetesVersion = REFERENCE
) -> Args:
    """The arguments of a plugin, from a document. Raises BadArguments."""
    prefix = f"{path}." if path else ""
    try:
        args = msgspec.convert(dict(given), plugin.args_type)
    except msgspec.ValidationError as fault:
        message, _, where = str(fault).partition(" - at `$")
        name = where.rstrip("`").lstrip(".") or plugin.name
        raise BadArguments([FieldError(f"{prefix}{name}", "FieldValueInvalid", message)]) from None
    faults = [FieldError(f"{prefix}{each.path}", each.reason, each.message) for each in args.faults(kubernetes)]
    if faults:
        raise BadArguments(faults)
    return args


class Profile:
    """The plugins of one profile, and the answers cached for shapes."""

    MEMORY = 256 << 20  # bytes that cached answers may take, approximately, or...
    MEMORY_PER_NODE = 8 << 10  # ...so many for each node if that is more; an answer takes 9 bytes for a node, or more
    LEAST = 8  # shapes whose answers are kept in any case
    RECOUNT = 64  # after so many new shapes, all answers are counted again

    def __init__(self, spec: ProfileSpec, tables: Tables, classes: Mapping[str, type[Plugin]]) -> None:
        self.name = spec.scheduler_name
        self.spec = spec
        self._tables = tables
        names = list(dict.fromkeys(name for point in EXTENSION_POINTS for name in spec.points.get(point, ())))
        self.plugins: dict[str, Plugin] = {
            name: classes[name](
                tables,
                read_args(classes[name], spec.args.get(name, {}), f"pluginConfig[{name}].args", tables.kubernetes),
            )
            for name in names
        }
        for plugin in self.plugins.values():
            if plugin.watches_pods:
                tables.listen(plugin)
        self.at = {
            point: tuple(self.plugins[name] for name in spec.points.get(point, ())) for point in EXTENSION_POINTS
        }
        handlers = [plugin for plugin in self.at["filter"] if plugin.handles_resources]
        self.weights = {name: spec.weights.get(name) or plugin.weight for name, plugin in self.plugins.items()}
        device_scorers = [(plugin, self.weights[plugin.name]) for plugin in self.at["deviceScore"]]
        for plugin in self.plugins.values():
            plugin.handlers = handlers
            plugin.device_scorers = device_scorers
        self._keyed = tuple(
            plugin for plugin in self.plugins.values() if type(plugin).shape_key is not Plugin.shape_key
        )
        self._no_keys = (None,) * len(self._keyed)
        self._keyed_without_volumes = tuple(plugin for plugin in self._keyed if not plugin.keys_volumes)
        self._shape_keys = tuple(plugin.shape_key for plugin in self._keyed)
        self._shape_keys_without_volumes = tuple(
            None if plugin.keys_volumes else plugin.shape_key for plugin in self._keyed
        )
        self._settled: dict[
            int, Shape
        ] = {}  # by plain shape: the shape of its pods that have neither annotations nor volumes
        self._settled_at = -1
        self._answers: dict[int, Answers] = {}
        self._cohorts: Cohorts = {}
        self.memory_limit: int | None = None  # bytes, in place of the limit that grows with the cluster
        self._bytes = 0  # what the answers take, as of when they were counted
        self._dropped: dict[int, None] = {}  # the shapes whose answers were dropped last, for lack of memory
        self._made = 0  # times that answers for a new shape were made
        self._uncounted: list[Answers] = []  # they get their size when they are used for the first time
        self._last_answers: Answers | None = None
        self._last_pod: Pod | None = None  # `schedule` and `assume` ask for the same pod one after the other
        self._last_state = -1
        self._versions = tables.versions
        self._everything = self._versions.everything
        self._namespaces = self._versions.namespaces

    @property
    def memory(self) -> int:
        """The bytes that cached answers may take, approximately."""
        if self.memory_limit is not None:
            return self.memory_limit
        return max(self.MEMORY, self.MEMORY_PER_NODE * len(self._tables.row_of))

    def answers_for(self, pod: Pod) -> Answers:
        """The answers for the shape of a pod."""
        state = self._tables.preparation_version
        if pod is self._last_pod and state == self._last_state and self._last_answers is not None:
            return self._last_answers
        answers = self.answers(self.shape(pod))
        self._last_pod, self._last_state = pod, state
        return answers

    def shape(self, pod: Pod) -> Shape:
        tables, spec = self._tables, pod.spec
        plain = tables.shapes.of(pod, node_name=spec.node_name)
        if pod.metadata.annotations or spec.volumes:
            return self._with_keys(plain, pod)
        if self._settled_at != self._versions.keys or len(self._settled) > Shapes.LIMIT:
            self._settled.clear()
            self._settled_at = self._versions.keys
        found = self._settled.get(plain.number)
        if found is None:
            found = self._with_keys(plain, pod)
            if all(plugin.key_is_shared(plain) for plugin in self._keyed_without_volumes):
                self._settled[plain.number] = found
        return found

    def _with_keys(self, plain: Shape, pod: Pod) -> Shape:
        shape_keys = self._shape_keys if pod.spec.volumes else self._shape_keys_without_volumes
        keys: Hashable = tuple([None if shape_key is None else shape_key(pod) for shape_key in shape_keys])
        return plain if keys == self._no_keys else self._tables.shapes.extended(plain, pod, keys)

    def answers(self, shape: Shape) -> Answers:
        """The answers for a shape, from an LRU cache."""
        versions = self._versions
        if self._everything != versions.everything:
            self.clear()
            self._everything = versions.everything
        if self._namespaces != versions.namespaces:
            self._drop_namespaces()
        elif self._last_answers is not None and self._last_answers.shape is shape:
            return self._last_answers
        self._last_pod = None
        found = self._answers.get(shape.number)
        if found is None:
            self._make_room(shape)
            found = self._answers[shape.number] = Answers(self._tables, shape, self.at, self.weights, self._cohorts)
            self._uncounted.append(found)
        elif len(self._answers) > 1:
            # Dicts keep insertion order: inserting it again makes it the most recently used.
            self._answers[shape.number] = self._answers.pop(shape.number)
        self._last_answers = found
        return found

    def _make_room(self, shape: Shape) -> None:
        """Drops answers if all together take too much memory: those that were used longest ago. Where pods of too many shapes
        come in turn, these are the ones that are needed next, so then it is those that were used last."""
        self._made += 1
        if self._made % self.RECOUNT == 0:
            self._uncounted = list(self._answers.values())
        uncounted, self._uncounted = self._uncounted, []
        for answers in uncounted:
            if self._answers.get(answers.shape.number) is not answers:
                continue
            size = answers.size()
            self._bytes += size - answers.counted
            answers.counted = size
        in_turn = shape.number in self._dropped
        memory = self.memory
        while self._bytes > memory and len(self._answers) > self.LEAST:
            number = next(reversed(self._answers) if in_turn else iter(self._answers))
            self._drop(number)
            self._dropped[number] = None
        while len(self._dropped) > 2 * len(self._answers):
            del self._dropped[next(iter(self._dropped))]
        self._dropped.pop(shape.number, None)

    def _drop(self, number: int) -> None:
        dropped = self._answers.pop(number)
        self._bytes -= dropped.counted
        dropped.close()

    def _drop_namespaces(self) -> None:
        """Drops what was prepared for namespaces that changed."""
        changed = self._versions.of_namespace
        for number, answers in list(self._answers.items()):
            if changed.get(answers.shape.namespace, 0) > self._namespaces:
                self._drop(number)
        self._namespaces = self._versions.namespaces
        self._last_answers = None

    def clear(self) -> None:
        for answers in self._answers.values():
            answers.close()
        self._answers.clear()
        self._bytes = 0
        self._cohorts.clear()
        self._last_answers = None
