"""Which controllers run, and what happens if the server does not serve a kind."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from tests.controllers.world import World, workload

from wharfinger.api.kinds.builtin import CRON_JOBS, REPLICA_SETS
from wharfinger.cli.commands.controllers import command
from wharfinger.controllers.registry import BY_NAME_ONLY, UnknownController, chosen, factories
from wharfinger.store import Store

ALL = [name for name in factories() if name not in BY_NAME_ONLY]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["*"], ALL),
        ([""], ALL),
        (["deployment", "replicaset"], ["replicaset", "deployment"]),
        pytest.param(
            ["deployment", "reservedquota"],
            ["deployment", "reservedquota"],
            marks=pytest.mark.needs_system("reservation"),
        ),
        (["*", "-cronjob"], [name for name in ALL if name != "cronjob"]),
        (["-cronjob"], [name for name in ALL if name != "cronjob"]),
    ],
)
def test_controllers_are_chosen_by_name(names: list[str], expected: list[str]) -> None:
    assert chosen(names) == expected


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownController, match='"nonsense" is not in the list of known controllers'):
        chosen(["nonsense"])
    result = CliRunner().invoke(command, ["--controllers", "nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.output


def test_the_command_lists_them() -> None:
    assert CliRunner().invoke(command, ["--list"]).output.split() == list(factories())


def test_a_kind_that_is_not_served_blocks_only_controllers_that_need_it() -> None:
    def without_cron_jobs(store: Store) -> None:
        registry = store.registry
        registry.remove(registry.of_resource(CRON_JOBS))

    with World(controllers=["replicaset", "cronjob"], setup=without_cron_jobs) as world:
        world.apply(REPLICA_SETS, workload(REPLICA_SETS, "web", replicas=2))
        assert len(world.pods("app=web")) == 2
