"""A writer is killed a hundred times while writing; every acknowledged write survives intact."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import CONFIG_MAPS
from wharfinger.store import Store

KILLS = 100
HERE = Path(__file__).parent


class Victims:
    """The process that forks the writers to be killed."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, str(HERE / "crash_writer.py"), str(path)]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src")}
        self._program = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def kill_one(self, seed: int, after: float) -> dict[str, tuple[int, int]]:
        """The last acknowledged result for each name before the writer was killed: version, and size or -1."""
        asked, told = self._program.stdin, self._program.stdout
        assert asked is not None and told is not None
        print(seed, file=asked, flush=True)
        ready, _, process = told.readline().partition(" ")
        assert ready == "ready"
        time.sleep(after)
        os.kill(int(process), signal.SIGKILL)
        outcomes = {}
        while (line := told.readline()) != "dead\n":
            name, version, size = line.split()
            outcomes[name] = (int(version), int(size))
        return outcomes

    def close(self) -> None:
        self._program.communicate()


async def contents(path: Path) -> tuple[int, dict[str, tuple[int, int]]]:
    store = Store.open(path, registry())
    found = {}
    for stored in (await store.list(CONFIG_MAPS)).items:
        document = stored.document()
        text = document["data"]["x"]
        assert text == "y" * len(text)
        assert document["metadata"]["resourceVersion"] == str(stored.version)
        found[stored.name] = (stored.version, len(text))
    version = store.version
    await store.close()
    return version, found


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_and_nothing_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    chance = random.Random(5)
    before: dict[str, tuple[int, int]] = {}
    count = last = 0
    victims = Victims(path)
    patience = 0.0  # on a busy machine a writer needs time to make progress
    for kill in range(KILLS):
        outcomes = victims.kill_one(kill, chance.uniform(0, 0.05) + patience)
        count += len(outcomes)
        patience = patience + 0.01 if not outcomes else patience * 0.8
        version, found = asyncio.run(contents(path))
        assert version >= max([last, *(written for written, _ in outcomes.values())])
        check(before, outcomes, found)
        before, last = found, version
    victims.close()
    assert count, "the victims got to work"


def check(
    before: dict[str, tuple[int, int]], outcomes: dict[str, tuple[int, int]], found: dict[str, tuple[int, int]]
) -> None:
    """Each worker has one write in progress: only that one may have become durable without acknowledgement."""
    expected = {name: state for name, state in {**before, **outcomes}.items() if state[1] >= 0}
    differing = [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]
    workers = [name.partition("-")[0] for name in differing]
    assert len(workers) == len(set(workers)), f"more than one write of a worker differs: {differing}"
    for name in differing:
        if name in found and name in outcomes:
            assert found[name][0] > outcomes[name][0], f"{name} went back in time"
