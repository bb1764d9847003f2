"""Reads the input of a simulation: manifests, scenarios and the configuration, from files, folders and standard
input.

Everything is read and validated before anything runs; all errors are reported together, with file, document and field
path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec
from msgspec.structs import replace

from wharfinger.api.configuration import API_VERSION as OWN_VERSION
from wharfinger.api.configuration import KIND as CONFIGURATION
from wharfinger.api.configuration import BadConfiguration, Configuration, load_configuration
from wharfinger.api.fields import FieldError
from wharfinger.api.kinds.builtin import CUSTOM_RESOURCE_DEFINITIONS, PODS
from wharfinger.api.kubernetes_version import SUPPORTED, named_version
from wharfinger.api.manifests import Content, Loaded, Manifest, ManifestFault, Source, load_all
from wharfinger.api.pod_texts import PodFront, PodText, StatusText
from wharfinger.api.registry import Document, Registry
from wharfinger.api.schema.decoding import DecodingWalk
from wharfinger.api.schema.tree import schema_of
from wharfinger.api.schema.type_errors import fits_strictly, text_fits_strictly, type_errors, unknown_fields
from wharfinger.api.times import parse_time
from wharfinger.apiserver.custom_kinds import kind_of
from wharfinger.client.memory import exclude_from_collections, gc_paused
from wharfinger.scenario.document import DEFAULT_START, Scenario, parse_scenario
from wharfinger.scenario.document import KIND as SCENARIO
from wharfinger.simulate.completeness import completeness
from wharfinger.simulate.snapshots import BadCompression, content_of, decompressed, is_header, lacking_kinds

_LARGE = 10_000  # objects
_SUFFIXES = (".yaml", ".yml", ".json", ".json.gz", ".json.zst")
_ELSEWHERE = {
    "KubeSchedulerConfiguration": "--config, or into the scheduler block of a WharfingerConfiguration",
    "NodeGroup": "`wharf capacity`",
    "PrometheusScores": "`wharf score prometheus`",
}


IsForeign = Callable[[Document], bool]
"""Whether an object that is not served here is of use to who reads the input."""


class BadInput(ValueError):
    """Invalid input; `problems` has a line for each error."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


class Inputs(msgspec.Struct):
    manifests: list[Manifest] = msgspec.field(default_factory=list)
    scenarios: list[tuple[Scenario, Source]] = msgspec.field(default_factory=list)
    configuration: Configuration = msgspec.field(default_factory=Configuration)
    configured: bool = False  # whether the files contain a configuration
    notes: list[str] = msgspec.field(default_factory=list)  # corrections, what is left out, and what a snapshot lacks
    taken_at: float = 0.0  # when `wharf snapshot` took the snapshot
    unseen_kinds: frozenset[str] = frozenset()  # kinds of which the snapshot may lack objects that the cluster has
    not_before: float = 0.0  # the earliest moment at which the virtual clock may start
    foreign: list[Manifest] = msgspec.field(
        default_factory=list
    )  # objects that are not served here, and were asked for

    def start(self) -> float:
        """When the virtual clock starts: as in a scenario, or at the default, but never before a snapshot was taken."""
        for scenario, _ in self.scenarios:
            if scenario.start_given:
                return max(scenario.start, self.not_before)
        return max([parse_time(DEFAULT_START), self.taken_at, self.not_before, *_times_told(self.manifests)])

    def on(self, cluster: Inputs) -> Inputs:
        """The same on a cluster: its objects come first, its configuration holds unless there is another one here, and
        the clock starts no earlier than there."""
        return Inputs(
            [*cluster.manifests, *self.manifests],
            self.scenarios,
            self.configuration if self.configured else cluster.configuration,
            self.configured or cluster.configured,
            self.notes,
            cluster.taken_at,
            cluster.unseen_kinds,
            not_before=cluster.not_before or cluster.start(),
            foreign=[*cluster.foreign, *self.foreign],
        )


def files_of(paths: Iterable[str], stdin: IO[bytes]) -> list[tuple[str, Content]]:
    """The named files, those in named folders (sorted), and `-` for standard input. Snapshots are read later, object by
    object."""
    found: list[tuple[str, Content]] = []
    problems = []
    for name in paths:
        path = Path(name)
        if name == "-":
            found.append(("standard input", decompressed(stdin.read())))
            continue
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.name.endswith(_SUFFIXES) and each.is_file())
            if not inside:
                problems.append(f"{name}: no YAML or JSON file in this folder")
            named = [(str(each), each) for each in inside]
        elif path.exists():
            named = [(name, path)]  # also a pipe, such as `<(…)` in a shell
        else:
            problems.append(f"{name}: no such file or folder")
            continue
        for shown, file in named:
            try:
                found.append((shown, content_of(file)))
            except OSError as error:
                problems.append(f"{shown}: cannot be read: {error.strerror}")
            except BadCompression as error:
                problems.append(f"{shown}: {error}")
    if problems:
        raise BadInput(problems)
    return found


def read_inputs(
    files: Iterable[tuple[str, Content]], registry: Registry, *, strict: bool = False, foreign: IsForeign | None = None
) -> Inputs:
    """Raises BadInput with all errors of all files. Kinds of CustomResourceDefinitions among them are added to the
    registry.

    Objects of API groups that are not known here are skipped with a note, and so are fields of a snapshot that are not:
    another version of Kubernetes may have them. With `strict` both are errors. Objects that `foreign` asks for are kept
    apart.
    """
    with gc_paused():
        inputs = _read_inputs(files, registry, strict, foreign or (lambda document: False))
        if len(inputs.manifests) > _LARGE:
            exclude_from_collections()
    return inputs


def _read_inputs(files: Iterable[tuple[str, Content]], registry: Registry, strict: bool, foreign: IsForeign) -> Inputs:
    loaded = load_all(files)
    inputs = Inputs(notes=[f"{fault} (read as what it means)" for fault in loaded.repaired])
    problems = list(loaded.faults)
    fields = _FieldCheck(registry)
    skipped: dict[tuple[str, str], list[ManifestFault]] = {}
    _learn(loaded, registry)
    configured: Source | None = None
    header: Document | None = None
    for manifest in loaded.manifests:
        if fields.are_known(manifest):
            inputs.manifests.append(manifest)
            continue
        manifest = Manifest(manifest.document, manifest.source)  # what the check drops must be gone from it
        document, source = manifest.document, manifest.source
        own = str(document.get("apiVersion", "")) == OWN_VERSION
        if is_header(document):
            header = document
        elif own and document.get("kind") == SCENARIO:
            scenario, errors = parse_scenario(document, registry)
            problems += faults_at(source, errors)
            inputs.scenarios.append((scenario, source))
        elif own and document.get("kind") == CONFIGURATION:
            if configured is not None:
                problems.append(ManifestFault(source, "", f"a second {CONFIGURATION}; the first is in {configured}"))
            configured, inputs.configured = source, True
            inputs.configuration, errors = _configuration(document)
            problems += faults_at(source, errors)
        elif registry.resource_of(document) is None and foreign(document):
            inputs.foreign.append(manifest)
        elif registry.resource_of(document) is None:
            what = f'no kind "{document.get("kind")}" in version "{document.get("apiVersion")}"'
            hint = _hint(document, registry)
            fault = ManifestFault(source, "kind", f"{what} is known here{hint}", source.line_of("kind"))
            if strict or hint or _is_mistaken(document, registry):
                problems.append(fault)
            else:
                skipped.setdefault((str(document.get("apiVersion")), str(document.get("kind"))), []).append(fault)
        else:
            problems += fields.check(manifest)
            inputs.manifests.append(manifest)
    inputs.notes += [_skipped(faults) for faults in skipped.values()]
    if strict:
        problems += fields.dropped.values()
    else:
        inputs.notes += [f"{fault} of this kind; it is left out" for fault in fields.dropped.values()]
    lacking = _complete(inputs, registry, header)
    if lacking and not strict:
        inputs.notes.append("\n  ".join([_INCOMPLETE, *lacking]))
    if problems:
        order = {file: number for number, file in enumerate(dict.fromkeys(fault.source.file for fault in problems))}
        problems.sort(key=lambda fault: (order[fault.source.file], fault.source.document))
        raise BadInput([str(fault) for fault in problems])
    if lacking and strict:
        raise BadInput([_INCOMPLETE, *lacking])
    return inputs


_INCOMPLETE = "the snapshot is incomplete (`wharf snapshot` takes a complete one). It lacks:"


def _complete(inputs: Inputs, registry: Registry, header: Document | None) -> list[str]:
    """Adds the objects that a snapshot lacks and that can be made again; returns what it lacks. `header` is what
    `wharf snapshot` wrote about it, if it did."""
    found = completeness(inputs.manifests, registry, taken=header is not None)
    inputs.manifests += found.added
    inputs.unseen_kinds = found.unseen_kinds
    if header is not None:
        inputs.taken_at = _time(header.get("time"))
        stated = header.get("kubernetesVersion")
        if inputs.configuration.kubernetes is None and stated in SUPPORTED:
            inputs.configuration = replace(inputs.configuration, kubernetes=named_version(stated))
        return [*lacking_kinds(header), *found.lacking]
    return found.lacking


def _time(text: object) -> float:
    try:
        return parse_time(str(text))
    except ValueError:
        return 0.0


class _FieldCheck:
    """Checks the fields of manifests: those that people wrote must have known fields and right types. Unknown fields of
    objects that a server stored are dropped and noted once for each kind and path."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.dropped: dict[tuple[str, str], ManifestFault] = {}
        self._good: set[PodFront | StatusText] = set()

    def are_known(self, manifest: Manifest) -> bool:
        """Whether it holds the text of a pod whose fields are in order. Those of others with the same text are, too."""
        pod = manifest.content
        if not isinstance(pod, PodText):
            return False
        if pod.front not in self._good or pod.status not in self._good:
            if not text_fits_strictly(schema_of(self._registry.of_resource(PODS), PODS.version), pod.data()):
                return False
            self._good |= {pod.front, pod.status}
        return True

    def check(self, manifest: Manifest) -> list[ManifestFault]:
        document, source = manifest.document, manifest.source
        resource = self._registry.resource_of(document)
        assert resource is not None, "kinds are checked before fields"
        kind = self._registry.of_resource(resource)
        schema = schema_of(kind, resource.version)
        if fits_strictly(schema, document):
            return []
        errors = type_errors(schema, document) if kind.builtin else []
        unknown = list(unknown_fields(schema, document))
        if unknown and (document.get("metadata") or {}).get("uid"):
            for field in unknown:
                key = (kind.kind, re.sub(r"\[\d+\]", "[]", field.path))
                if key not in self.dropped:
                    line = source.line_of(field.path)
                    self.dropped[key] = ManifestFault(source, field.path, "unknown field", line)
            DecodingWalk(patch=False, typed=False).value(schema, document, "", "", kind.kind)
            unknown = []
        return faults_at(
            source, [*errors, *(FieldError(each.path, "FieldValueForbidden", each.message) for each in unknown)]
        )


def _is_mistaken(document: Document, registry: Registry) -> bool:
    """Whether people wrote an object of a kind that its group does not have. A snapshot may come from a newer server."""
    metadata = document.get("metadata")
    if isinstance(metadata, dict) and metadata.get("uid"):
        return False
    served = {kind.resource(version).api_version for kind in registry for version in kind.versions}
    return document.get("apiVersion") in served


def _skipped(faults: Sequence[ManifestFault]) -> str:
    number = f"{len(faults)} objects are" if len(faults) > 1 else "it is"
    return f"{faults[0]}; {number} skipped"


def _configuration(document: Document) -> tuple[Configuration, list[FieldError]]:
    # Imports all plugins, so only if there is something to validate.
    from wharfinger.scheduler import profiles
    from wharfinger.scheduler.configuration import BadSchedulerConfiguration

    configuration, errors = Configuration(), []
    try:
        configuration = load_configuration(document)
    except BadConfiguration as error:
        errors += error.errors
    scheduler = document.get("scheduler")
    try:
        profiles.load(scheduler if isinstance(scheduler, dict) else {}, settings=configuration)
    except BadSchedulerConfiguration as error:
        errors += [FieldError(f"scheduler.{each.path}", each.reason, each.message) for each in error.errors]
    return configuration, errors


def faults_at(source: Source, errors: Iterable[FieldError]) -> list[ManifestFault]:
    """The errors of an object with the lines of its fields."""
    return [ManifestFault(source, error.path, error.message, source.line_of(error.path)) for error in errors]


def _learn(loaded: Loaded, registry: Registry) -> None:
    """Adds the kinds of CustomResourceDefinitions, including those in scenarios, unless they are served already."""
    for manifest in loaded.manifests:
        document = manifest.outline
        steps = document.get("steps") if document.get("kind") == SCENARIO else None
        applied = [step.get("apply") for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
        for each in (document, *(item for items in applied if isinstance(items, list) for item in items)):
            if isinstance(each, dict) and each.get("kind") == CUSTOM_RESOURCE_DEFINITIONS.kind:
                try:
                    kind = kind_of(each)
                except (AttributeError, KeyError, TypeError):
                    continue  # the API will report what is wrong with the definition
                if kind is not None and registry.of_plural(kind.group, kind.plural) is None:
                    registry.add(kind)


def _hint(document: Document, registry: Registry) -> str:
    belongs = _ELSEWHERE.get(str(document.get("kind", "")))
    if belongs is not None:
        return f"; it belongs to {belongs}"
    known = registry.find(str(document.get("kind", "")))
    if known is not None:
        return f"; {known.kind} is served as {', '.join(known.resource(version).api_version for version in known.versions)}"
    return ""


def _times_told(manifests: Iterable[Manifest]) -> list[float]:
    """All timestamps that a server wrote; the snapshot was taken after the last of them."""
    texts: set[str] = set()
    seen: set[StatusText] = set()
    for manifest in manifests:
        pod = manifest.content
        document = pod.front.outline if isinstance(pod, PodText) else pod
        created = (document.get("metadata") or {}).get("creationTimestamp")
        if not isinstance(created, str):
            continue
        texts.add(created)
        if isinstance(pod, PodText):
            if pod.status not in seen:
                seen.add(pod.status)
                texts.update(_times_in(pod.status.data))
        elif status := document.get("status"):
            texts.update(_times_in(msgspec.json.encode(status)))
    times = []
    for text in texts:
        try:
            times.append(parse_time(text))
        except ValueError:
            continue
    return times


_TIMES = re.compile(rb'"(?!expir|next)[^"\\]*(?:Time|Timestamp|At)":"([^"\\]*)"')
"""Members that say when something happened, such as `startTime`, `lastTransitionTime` and `startedAt`."""


def _times_in(status: bytes) -> Iterator[str]:
    """The timestamps in the JSON of a status, where they are found ten times as fast as by a walk."""
    return (found.decode() for found in _TIMES.findall(status))
