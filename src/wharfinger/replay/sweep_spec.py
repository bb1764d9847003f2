"""What a sweep tries: traces, configurations and seeds, read from a `Sweep` document. Pure, but for reading files."""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from wharfinger.api.configuration import KIND as CONFIGURATION
from wharfinger.api.configuration import BadConfiguration, load_configuration
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, parse_duration
from wharfinger.scheduler import profiles
from wharfinger.scheduler.configuration import BadSchedulerConfiguration
from wharfinger.simulate.inputs import BadInput

API_VERSION, KIND = "wharfinger.dev/v1alpha1", "Sweep"
MOST_JOBS = 1_000_000
_FIELDS = (
    "apiVersion",
    "kind",
    "traces",
    "openb",
    "seeds",
    "until",
    "search",
    "base",
    "parameters",
    "configs",
    "policies",
    "objective",
)
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]|\[(\w+)=([^\]]+)\]")
_PATH = re.compile(r"[^.\[\]]+(\[[^\]]+\])*(\.[^.\[\]]+(\[[^\]]+\])*)*")


class SweepParameter(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A field of the configuration and the values to try: given ones, or a range."""

    path: str
    values: list[Any] = []
    min: float | None = None
    max: float | None = None
    steps: int = 5  # of a range in a grid
    integer: bool = False
    log: bool = False  # a range whose values are spread evenly by their logarithms

    def grid(self) -> list[Any]:
        if self.values:
            return self.values
        return list(dict.fromkeys(self._at(step / max(1, self.steps - 1)) for step in range(self.steps)))

    def drawn(self, source: random.Random) -> Any:
        return source.choice(self.values) if self.values else self._at(source.random())

    def _at(self, share: float) -> Any:
        low, high = self.min or 0.0, self.max or 0.0
        if self.log:
            value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            value = low + share * (high - low)
        return round(value) if self.integer else round(value, 9)

    def fault(self) -> str:
        if not self.values and (self.min is None or self.max is None):
            return "needs `values`, or `min` and `max`"
        if self.values and (self.min is not None or self.max is not None):
            return "has `values` and a range; give one of them"
        if not self.values and (self.min or 0.0) > (self.max or 0.0):
            return "the range ends before it begins"
        if self.log and (self.min or 0.0) <= 0:
            return "a logarithmic range begins above zero"
        return "" if self.steps > 0 else "`steps` must be positive"


@dataclass(frozen=True, slots=True)
class SweepJob:
    """One replay. Everything a worker needs to know but the trace itself."""

    trace: str  # folder, or `nodes.csv pods.csv` of openb
    name: str  # of the configuration
    seed: int
    until: float | None = None
    configuration: Document = field(default_factory=dict)
    path: str = ""  # a configuration that is read from a file or folder
    policy: str = ""  # of openb
    parameters: tuple[tuple[str, Any], ...] = ()
    stamp: str = ""  # changes when the trace or the files do

    @property
    def key(self) -> str:
        """The same for the same work, so that a sweep can go on where it stopped."""
        parts = [self.trace, self.stamp, self.seed, self.until, self.configuration, self.path, self.policy]
        return hashlib.blake2s(msgspec.json.encode(parts, order="sorted"), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class SweepObjective:
    field: str
    maximize: bool


@dataclass(frozen=True, slots=True)
class SweepSpec:
    jobs: Sequence[SweepJob]
    objective: SweepObjective


def read_spec(path: Path) -> SweepSpec:
    """Raises BadInput with everything that is wrong."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        raise BadInput([f"{path}: no such file"]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput([f"{path}: not YAML: {error}"]) from error
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        raise BadInput([f"{path}: not a {KIND} of {API_VERSION}"])
    return _SpecReader(path, document).read()


class _SpecReader:
    def __init__(self, path: Path, document: Document) -> None:
        self._path = path
        self._folder = path.parent
        self._document = document
        self._problems = [f"{path}: {key}: unknown field" for key in document if key not in _FIELDS]

    def read(self) -> SweepSpec:
        seeds, until = self._seeds(), self._until()
        traces = self._files("traces")
        openb = self._openb()
        if not traces and not openb:
            self._refuse("traces", "missing; name the folders of traces, or tables with `openb`")
        objective = self._objective(bool(openb))
        configurations = list(self._configurations()) if traces else []
        jobs: list[SweepJob] = []
        for trace in traces:
            stamp = _stamp(Path(trace))
            jobs += [
                SweepJob(trace, name, seed, until, document, file, parameters=parameters, stamp=stamp)
                for name, document, file, parameters in configurations
                for seed in seeds
            ]
        for trace, policy in itertools.product(openb, self._policies(bool(openb))):
            stamp = " ".join(_stamp(Path(each)) for each in trace.split("\n"))
            jobs += [SweepJob(trace, policy, seed, policy=policy, stamp=stamp) for seed in seeds]
        if len(jobs) > MOST_JOBS:
            self._refuse("", f"{len(jobs)} replays are too many")
        if self._problems:
            raise BadInput(self._problems)
        return SweepSpec(jobs, objective)

    def _refuse(self, field: str, message: str) -> None:
        self._problems.append(": ".join(part for part in (str(self._path), field, message) if part))

    def _files(self, field: str) -> list[str]:
        given = self._document.get(field) or []
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            self._refuse(field, "not a list of paths")
            return []
        found = [str(self._folder / each) for each in given]
        for each in found:
            if not Path(each).exists():
                self._refuse(field, f"{each}: no such file or folder")
        return found

    def _openb(self) -> list[str]:
        given = self._document.get("openb") or []
        found = []
        for index, each in enumerate(given if isinstance(given, list) else [given]):
            if not isinstance(each, dict) or set(each) != {"nodes", "pods"}:
                self._refuse(f"openb[{index}]", "needs `nodes` and `pods`, and nothing else")
                continue
            paths = [self._folder / str(each[part]) for part in ("nodes", "pods")]
            for path in paths:
                if not path.is_file():
                    self._refuse(f"openb[{index}]", f"{path}: no such file")
            found.append("\n".join(map(str, paths)))
        return found

    def _policies(self, wanted: bool) -> list[str]:
        from wharfinger.plugins.device_packing.registry import POLICIES

        given = self._document.get("policies") or (list(POLICIES) if wanted else [])
        if not wanted and given:
            self._refuse("policies", "belongs to `openb`")
        for each in given:
            if each not in POLICIES:
                self._refuse("policies", f"there is no policy {each}; there are {', '.join(POLICIES)}")
        return [str(each) for each in given]

    def _seeds(self) -> list[int]:
        given = self._document.get("seeds", [0])
        if isinstance(given, dict) and set(given) == {"first", "last"}:
            ends = [given["first"], given["last"]]
            if all(isinstance(each, int) for each in ends) and ends[0] <= ends[1]:
                return list(range(ends[0], ends[1] + 1))
        elif isinstance(given, list) and given and all(isinstance(each, int) for each in given):
            return list(dict.fromkeys(given))
        self._refuse("seeds", "not a list of numbers, nor `first` and `last`")
        return []

    def _until(self) -> float | None:
        given = self._document.get("until")
        if given is None:
            return None
        try:
            return parse_duration(str(given))
        except BadTime as error:
            self._refuse("until", str(error))
            return None

    def _objective(self, openb: bool) -> SweepObjective:
        given = self._document.get("objective")
        default = SweepObjective("allocated.100" if openb else "placed", True)
        if given is None:
            return default
        if isinstance(given, dict) and len(given) == 1 and next(iter(given)) in ("maximize", "minimize"):
            way, name = next(iter(given.items()))
            return SweepObjective(str(name), way == "maximize")
        self._refuse("objective", "needs `maximize` or `minimize`, with the name of a result")
        return default

    # -- configurations

    def _configurations(self) -> Iterator[tuple[str, Document, str, tuple[tuple[str, Any], ...]]]:
        """Name, document, file and parameters of each configuration."""
        for file in self._files("configs"):
            yield Path(file).name.removesuffix(".yaml"), {}, file, ()
        parameters = self._parameters()
        if not parameters:
            if not self._document.get("configs"):
                yield "base", self._base(), "", ()
            return
        base = self._base()
        for values in self._points(parameters):
            chosen = tuple((each.path, value) for each, value in zip(parameters, values, strict=True))
            document = copy.deepcopy(base)
            try:
                for path, value in chosen:
                    set_field(document, path, value)
                profiles.load(document.get("scheduler") or {}, settings=load_configuration(document))
            except (BadConfiguration, BadSchedulerConfiguration) as error:
                self._refuse("parameters", f"{_named(chosen)}: {'; '.join(map(str, error.errors))}")
                continue
            except (TypeError, KeyError, ValueError) as error:
                self._refuse("parameters", str(error))
                return
            yield _named(chosen), document, "", chosen

    def _base(self) -> Document:
        given = self._document.get("base")
        if given is None:
            return {}
        document = given
        if isinstance(given, str):
            try:
                document = yaml.safe_load((self._folder / given).read_text(encoding="utf-8")) or {}
            except (OSError, yaml.YAMLError) as error:
                self._refuse("base", f"{given}: {error}")
                return {}
        if isinstance(document, dict) and document.get("kind") not in (None, CONFIGURATION):
            document = {"scheduler": document}
        if not isinstance(document, dict):
            self._refuse("base", "not a configuration")
            return {}
        return document

    def _parameters(self) -> list[SweepParameter]:
        found = []
        for index, each in enumerate(self._document.get("parameters") or ()):
            try:
                parameter = msgspec.convert(each, SweepParameter)
            except msgspec.ValidationError as error:
                self._refuse(f"parameters[{index}]", str(error))
                continue
            if fault := parameter.fault():
                self._refuse(f"parameters[{index}]", fault)
                continue
            found.append(parameter)
        return found

    def _points(self, parameters: Sequence[SweepParameter]) -> Iterator[Sequence[Any]]:
        search = self._document.get("search", "grid")
        if search == "grid":
            yield from itertools.product(*(each.grid() for each in parameters))
            return
        samples = search.get("random") if isinstance(search, dict) else None
        if not isinstance(samples, int) or samples < 1 or set(search) - {"random", "seed"}:
            self._refuse("search", "is `grid`, or `random` with a number of samples and a `seed`")
            return
        source = random.Random(search.get("seed", 0))
        seen: set[bytes] = set()
        for _ in range(samples):
            values = [each.drawn(source) for each in parameters]
            mark = msgspec.json.encode(values)
            if mark not in seen:
                seen.add(mark)
                yield values


def _named(chosen: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(f"{path.rpartition('.')[2]}={value}" for path, value in chosen)


def _stamp(path: Path) -> str:
    """Changes when the files of a trace do."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    parts = [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in files if each.is_file()]
    return hashlib.blake2s(msgspec.json.encode(parts), digest_size=8).hexdigest()


def set_field(document: Document, path: str, value: Any) -> None:
    """Sets a field such as `scheduler.profiles[0].pluginConfig[name=NodeResourcesFit].args.scoringStrategy.type`. What is
    missing on the way is made."""
    steps = list(_STEP.finditer(path))
    if _PATH.fullmatch(path) is None:
        raise ValueError(f"{path}: not a path of fields")
    place: Any = document
    for number, match in enumerate(steps):
        last = number == len(steps) - 1
        fresh: Any = value if last else [] if steps[number + 1][0].startswith("[") else {}
        place = _descend(place, match, fresh, last, path)


def _descend(place: Any, match: re.Match[str], fresh: Any, last: bool, path: str) -> Any:
    name, index, key, wanted = match.groups()
    if name is not None:
        if not isinstance(place, dict):
            raise ValueError(f"{path}: {name} is not a field there")
        if last or place.get(name) is None:
            place[name] = fresh
        return place[name]
    if not isinstance(place, list):
        raise ValueError(f"{path}: {match[0]}: not a list")
    if index is not None:
        at = int(index)
        if at > len(place):
            raise ValueError(f"{path}: {match[0]}: there are only {len(place)}")
        if at == len(place):
            place.append(fresh)
        elif last:
            place[at] = fresh
        return place[at]
    found = next((each for each in place if isinstance(each, Mapping) and str(each.get(key)) == wanted), None)
    if found is None:
        found = {key: wanted}
        place.append(found)
    return found
