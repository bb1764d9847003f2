"""Reads what a simulation starts from: manifests, scenarios and the configuration, out of files, folders and standard input.

Everything is read and checked before anything runs; all faults are told at once, each with file, document and field path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from wharfinger.api.configuration import API_VERSION as OWN_VERSION
from wharfinger.api.configuration import KIND as CONFIGURATION
from wharfinger.api.configuration import BadConfiguration, Configuration, load_configuration
from wharfinger.api.fields import FieldError
from wharfinger.api.manifests import Fault, Loaded, Manifest, Source, load_all
from wharfinger.api.registry import Document, Registry
from wharfinger.api.times import parse_time
from wharfinger.client.memory import gc_paused
from wharfinger.scheduler import profiles
from wharfinger.scheduler.configuration import BadSchedulerConfiguration
from wharfinger.simulate.scenario import DEFAULT_START, Scenario, parse_scenario
from wharfinger.simulate.scenario import KIND as SCENARIO

_SUFFIXES = (".yaml", ".yml", ".json")


class BadInput(ValueError):
    """Something cannot be read; `problems` has a line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


@dataclass(slots=True)
class Inputs:
    manifests: list[Manifest] = field(default_factory=list)
    scenarios: list[tuple[Scenario, Source]] = field(default_factory=list)
    configuration: Configuration = field(default_factory=Configuration)
    notes: list[str] = field(default_factory=list)  # what was mended, what has no effect

    def start(self) -> float:
        """When the virtual clock starts: as a scenario says, else at the default, but never before a snapshot was made."""
        for scenario, _ in self.scenarios:
            if scenario.start_given:
                return scenario.start
        return max([parse_time(DEFAULT_START), *_creation_times(self.manifests)])


def files_of(paths: Iterable[str], stdin: IO[str]) -> list[tuple[str, str | bytes]]:
    """The named files, those in named folders (sorted), and `-` for standard input."""
    found: list[tuple[str, str | bytes]] = []
    problems = []
    for name in paths:
        path = Path(name)
        if name == "-":
            found.append(("standard input", stdin.read()))
        elif path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES and each.is_file())
            if not inside:
                problems.append(f"{name}: no YAML or JSON file in this folder")
            found += [(str(each), each.read_bytes()) for each in inside]
        elif path.is_file():
            found.append((name, path.read_bytes()))
        else:
            problems.append(f"{name}: no such file or folder")
    if problems:
        raise BadInput(problems)
    return found


def read_inputs(files: Iterable[tuple[str, str | bytes]], registry: Registry) -> Inputs:
    """Raises BadInput with every fault of every file."""
    with gc_paused():
        loaded = load_all(files)
    inputs = Inputs(notes=[f"{fault} (read as what it means)" for fault in loaded.mended])
    problems = [str(fault) for fault in loaded.faults]
    custom = _custom_kinds(loaded)
    configured: Source | None = None
    for manifest in loaded.manifests:
        document, source = manifest.document, manifest.source
        own = str(document.get("apiVersion", "")) == OWN_VERSION
        if own and document.get("kind") == SCENARIO:
            scenario, errors = parse_scenario(document, registry)
            problems += _faults(source, errors)
            inputs.scenarios.append((scenario, source))
        elif own and document.get("kind") == CONFIGURATION:
            if configured is not None:
                problems.append(f"{source}: a second {CONFIGURATION}; the first is in {configured}")
            configured = source
            inputs.configuration, errors = _configuration(document)
            problems += _faults(source, errors)
        elif registry.resource_of(document) is None and _type(document) not in custom:
            what = f'no kind "{document.get("kind")}" in version "{document.get("apiVersion")}"'
            hint = _hint(document, registry)
            problems.append(str(Fault(source, "kind", f"{what} is known here{hint}", source.line_of("kind"))))
        else:
            inputs.manifests.append(manifest)
    if problems:
        raise BadInput(problems)
    return inputs


def _configuration(document: Document) -> tuple[Configuration, list[FieldError]]:
    try:
        configuration = load_configuration(document)
        profiles.load(configuration.scheduler)
    except BadConfiguration as error:
        return Configuration(), error.errors
    except BadSchedulerConfiguration as error:
        nested = [FieldError(f"scheduler.{each.path}", each.reason, each.message) for each in error.errors]
        return Configuration(), nested
    return configuration, []


def _faults(source: Source, errors: Iterable[FieldError]) -> list[str]:
    return [str(Fault(source, error.path, error.message, source.line_of(error.path))) for error in errors]


def _type(document: Document) -> tuple[str, str]:
    return str(document.get("apiVersion", "")).rpartition("/")[0], str(document.get("kind", ""))


def _custom_kinds(loaded: Loaded) -> set[tuple[str, str]]:
    """Group and kind of what CustomResourceDefinitions among the files define."""
    found = set()
    for manifest in loaded.manifests:
        if manifest.document.get("kind") == "CustomResourceDefinition":
            spec = manifest.document.get("spec") or {}
            found.add((str(spec.get("group")), str((spec.get("names") or {}).get("kind"))))
    return found


def _hint(document: Document, registry: Registry) -> str:
    known = registry.find(str(document.get("kind", "")))
    if known is not None:
        return f"; {known.kind} is served as {', '.join(known.resource(version).api_version for version in known.versions)}"
    return ""


def _creation_times(manifests: Iterable[Manifest]) -> list[float]:
    times = []
    for manifest in manifests:
        text = (manifest.document.get("metadata") or {}).get("creationTimestamp")
        if isinstance(text, str):
            try:
                times.append(parse_time(text))
            except ValueError:
                continue
    return times
