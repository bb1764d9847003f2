"""One or several replays of a trace, and their comparison."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.replay.comparing import RECORD, ReplayComparison, compare, report
from wharfinger.replay.playing import play, recorded_nodes
from wharfinger.replay.runs import ReplayConfiguration, ReplayOptions, ReplayRun
from wharfinger.replay.trace import Trace
from wharfinger.simulate.inputs import BadInput, files_of, read_inputs

DEFAULT = "as recorded"


def replay(
    trace: Trace, configurations: Sequence[ReplayConfiguration], options: ReplayOptions
) -> tuple[list[ReplayRun], list[ReplayComparison]]:
    """Replays the trace with each configuration. The decisions of the first are compared with the record, each in the
    recorded state, and those of the others with the first, each in its own state."""
    runs: list[ReplayRun] = []
    comparisons: list[ReplayComparison] = []
    recorded = recorded_nodes(trace)
    if recorded:
        checked = play(trace, configurations[0], recorded, replace(options, check=True))
        comparisons.append(compare(recorded, checked, RECORD))
        if options.check:
            return [checked], comparisons
    for configured in configurations:
        expected = runs[0].nodes() if runs else recorded
        run = play(trace, configured, expected, replace(options, check=False))
        if runs:
            comparisons.append(compare(expected, run, runs[0].name))
        runs.append(run)
    return runs, comparisons


def replay_report(
    trace: Trace, configurations: Sequence[ReplayConfiguration], options: ReplayOptions
) -> dict[str, object]:
    """The ReplayReport of `replay`."""
    return report(trace, *replay(trace, configurations, options))


def read_configurations(paths: Sequence[str], trace: Trace) -> list[ReplayConfiguration]:
    """Each is a file or a folder with a WharfingerConfiguration or KubeSchedulerConfiguration, and with objects to apply
    on top of those of the trace. Without any, the configuration that was recorded. Raises BadInput."""
    present = trace.configuration or Configuration()
    if not paths:
        return [ReplayConfiguration(DEFAULT, present)]
    names = _names(paths)
    return [_read(path, name, present) for path, name in zip(paths, names, strict=True)]


def _names(paths: Sequence[str]) -> list[str]:
    """The names of the files without their suffixes; the paths where those are not different."""
    short = [Path(path).name.removesuffix(".yaml").removesuffix(".yml") or path for path in paths]
    return short if len(set(short)) == len(short) else list(paths)


def _read(path: str, name: str, present: Configuration) -> ReplayConfiguration:
    from wharfinger.api.manifests import load_all
    from wharfinger.scheduler import profiles
    from wharfinger.scheduler.configuration import BadSchedulerConfiguration

    files = files_of([path], sys.stdin.buffer)
    rest: list[tuple[str, object]] = []
    scheduler: dict[str, object] | None = None
    for file, content in files:
        loaded = load_all([(file, content)])
        stock = [each for each in loaded.manifests if each.document.get("kind") == "KubeSchedulerConfiguration"]
        if stock and len(loaded.manifests) > 1:
            raise BadInput([f"{file}: a KubeSchedulerConfiguration belongs into a file of its own"])
        if stock and scheduler is not None:
            raise BadInput([f"{file}: a second KubeSchedulerConfiguration"])
        if stock:
            scheduler = stock[0].document
        else:
            rest.append((file, content))
    inputs = read_inputs(rest, registry(), strict=True)  # type: ignore[arg-type]  # contents as they came
    configuration = inputs.configuration if inputs.configured else present
    if configuration.kubernetes is None:
        configuration = msgspec.structs.replace(configuration, kubernetes=present.kubernetes)
    if scheduler is not None:
        configuration = msgspec.structs.replace(configuration, scheduler=scheduler)
        try:
            profiles.load(configuration.scheduler, settings=configuration)
        except BadSchedulerConfiguration as error:
            raise BadInput([f"{path}: {fault}" for fault in error.errors]) from error
    return ReplayConfiguration(name, configuration, tuple(inputs.manifests))
