"""The victims of the crash test: each writes to a data file and tells what was acknowledged, until it is killed.

Run as a program, it forks one victim for every line on its input, so that imports are paid for once. Its output holds
`ready PID`, then `NAME VERSION SIZE` of every write (-1 for a deletion), then `dead`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from pathlib import Path

from wharfinger.api.errors import AlreadyExists
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import CONFIG_MAPS, NAMESPACES
from wharfinger.api.registry import Registry
from wharfinger.api.requests import PatchType
from wharfinger.store import Store, Written
from wharfinger.store.sqlite import DataFile


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # one small write to a pipe is never cut


def tell(written: Written, *, gone: bool = False) -> None:
    metadata = written.document["metadata"]
    size = -1 if gone else len(written.document["data"]["x"])
    say(f"{metadata['name']} {metadata['resourceVersion']} {size}")


async def write(store: Store, worker: int, chance: random.Random) -> None:
    names = [f"w{worker}-{number}" for number in range(6)]
    while True:
        name = chance.choice(names)
        data = {"x": "y" * chance.choice((1, 100, 5000, 60_000))}
        if store.peek(CONFIG_MAPS, name, "default") is None:
            document = {"metadata": {"name": name}, "data": data}
            tell(await store.create(CONFIG_MAPS, document, "default"))
        elif chance.random() < 0.6:
            tell(await store.patch(CONFIG_MAPS, name, {"data": data}, "default", type=PatchType.MERGE))
        else:
            tell(await store.delete(CONFIG_MAPS, name, "default"), gone=True)


async def victim(path: Path, seed: int, known: Registry) -> None:
    store = Store(known, DataFile(path))
    with contextlib.suppress(AlreadyExists):
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
    say(f"ready {os.getpid()}")
    chance = random.Random(seed)
    await asyncio.gather(*(write(store, worker, chance) for worker in range(8)))


def main(path: Path) -> None:
    known = registry()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            asyncio.run(victim(path, int(line), known))
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
