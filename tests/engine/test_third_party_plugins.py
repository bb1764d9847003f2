"""Plugins of other packages: the shipped example, discovery through entry points, and errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wharfinger.engine.profile import Profile, default_profile, read_args
from wharfinger.engine.registry import BadPlugin, known_plugins
from wharfinger.framework import Plugin
from wharfinger.framework.tables import Tables

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture
def example_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for name in ("quiet_racks", "test_quiet_racks"):
        sys.modules.pop(name, None)


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    known_plugins.cache_clear()
    yield
    known_plugins.cache_clear()


def install(directory: Path, *entries: str) -> None:
    """Creates the metadata that an installer writes for a package that registers plugins."""
    info = directory / "thirdparty-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thirdparty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[wharfinger.plugins]", *entries, ""]))


@pytest.mark.parametrize("form", ["QuietRacks", "QuietNodes"])
def test_the_shipped_example_does_what_it_says(example_path: None, form: str) -> None:
    import quiet_racks
    import test_quiet_racks

    test_quiet_racks.test_nodes_in_maintenance_are_refused_and_quiet_ones_preferred(getattr(quiet_racks, form))
    assert len((EXAMPLE / "quiet_racks.py").read_text().splitlines()) < 40


def test_a_plugin_is_found_by_its_entry_point(
    example_path: None, fresh_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "quiet-racks = quiet_racks:QuietRacks")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = known_plugins()
    assert "QuietRacks" in found
    assert "QuietRacks" not in default_profile().points["filter"]  # it is not enabled by default
    profile = default_profile(extra=[found["QuietRacks"]])
    assert Profile(profile, Tables(), found).at["filter"][-1].name == "QuietRacks"


def test_an_entry_point_that_is_no_plugin_is_refused_by_name(
    fresh_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "wrong = pathlib:Path")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadPlugin, match="wrong = pathlib:Path: not a subclass of Plugin with a name"):
        known_plugins()


def test_unknown_arguments_are_refused_by_path() -> None:
    with pytest.raises(ValueError, match="Object contains unknown field `speed`"):
        read_args(Plugin, {"speed": 3}, "args")
