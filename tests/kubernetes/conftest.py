"""The tier against a real Kubernetes: run by `make test-kubernetes`, that is, only when its folder or a file of it is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubernetes.binaries import Binaries, NoBinaries, find_or_make
from tests.kubernetes.cluster import Cluster
from tests.support import missing

HERE = Path(__file__).resolve().parent
SKIPPED: list[str] = []
"""Scenarios that were not played, each with the reason, for the end of the report."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if SKIPPED:
        terminalreporter.section(f"{len(SKIPPED)} scenario files cannot be played on a real cluster")
        for line in sorted(SKIPPED):
            terminalreporter.line(line)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` stays quick and needs no servers: what names no path in here leaves this folder out."""
    named = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(HERE) for path in named) else True


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    try:
        return find_or_make()
    except NoBinaries as error:
        missing("kubernetes", str(error))


@pytest.fixture(scope="session")
def cluster(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for most of the tier; tests keep to namespaces and nodes of their own."""
    made = Cluster(binaries, tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        made.kubectl("apply", "--server-side", "-f", "-", stdin=made.run_wharf("crds"))
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def fresh_cluster(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without anything of ours, for tests that change all of it."""
    made = Cluster(binaries, tmp_path_factory.mktemp("fresh"))
    try:
        made.start()
        yield made
    finally:
        made.stop()
