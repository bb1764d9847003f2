"""What holds for all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from wharfinger.system import DISABLED

# The same examples in every run, and none fails because the machine is busy.
settings.register_profile("steady", deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
settings.load_profile("steady")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests of systems that are left out: those below tests/systems and those marked with `needs_system`."""
    left_out = set(os.environ.get(DISABLED, "").split(","))
    systems = Path(__file__).parent / "systems"
    for item in items:
        names = {name for mark in item.iter_markers("needs_system") for name in mark.args}
        if item.path.is_relative_to(systems):
            names.add(item.path.relative_to(systems).parts[0])
        if missing := names & left_out:
            item.add_marker(pytest.mark.skip(reason=f"{', '.join(sorted(missing))} is left out"))
