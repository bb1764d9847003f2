"""The tier against a real Kubernetes: run by `make test-kubernetes`, that is, only when its folder or a file of it is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubernetes.binaries import Binaries, NoBinaries, find_or_make
from tests.kubernetes.cluster import Cluster
from tests.support import missing

HERE = Path(__file__).resolve().parent
PATIENCE = 900  # seconds for a test; what it waits for has limits of its own, and several may be waited for
NOT_PLAYED = "scenarios that cannot be played on a real cluster"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names what tests recorded as not played."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    found = {value for each in reports for name, value in getattr(each, "user_properties", ()) if name == NOT_PLAYED}
    if found:
        terminalreporter.section(f"{len(found)} {NOT_PLAYED}")
        for line in sorted(found):
            terminalreporter.line(str(line))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that others can be done beside it."""
    items.sort(key=lambda item: item.path.name != "test_scenarios.py")
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE))


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
