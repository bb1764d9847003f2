"""The data file: what survives restarts, and which files are rejected and left unchanged."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.store.support import MERGE, WIDGETS, config, registry, widget

from wharfinger.api import kinds
from wharfinger.api.errors import Expired, ServiceUnavailable
from wharfinger.api.kinds.builtin import CONFIG_MAPS, NAMESPACES
from wharfinger.store import Store
from wharfinger.store.ledger import Row
from wharfinger.store.sqlite import DataFile, DataFileError


def open_store(path: Path) -> Store:
    return Store.open(path, registry())


async def fill(path: Path, count: int = 50) -> dict[str, bytes]:
    store = open_store(path)
    await store.create(NAMESPACES, {"metadata": {"name": "default"}})
    for number in range(count):
        await store.create(CONFIG_MAPS, config(f"c{number}", data={"x": "y" * 2000}), "default")
    found = {stored.name: stored.data for stored in (await store.list(CONFIG_MAPS)).items}
    await store.close()
    return found


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data.db"

    async def body() -> None:
        await fill(path)
        store = open_store(path)
        await store.patch(CONFIG_MAPS, "c1", {"metadata": {"labels": {"a": "b"}}}, "default", type=MERGE)
        await store.delete(CONFIG_MAPS, "c2", "default")
        await store.create(WIDGETS, widget(), "default")
        await store.delete(WIDGETS, "w", "default")
        before = {stored.name: stored.data for stored in (await store.list(CONFIG_MAPS)).items}
        version = store.version
        await store.close()

        store = open_store(path)
        items = (await store.list(CONFIG_MAPS)).items
        assert {stored.name: stored.data for stored in items} == before
        assert store.version == version, "a version is never given twice, though the last write was a removal"
        assert next(stored for stored in items if stored.name == "c1").labels == {"a": "b"}
        with pytest.raises(Expired, match="too old resource version"):
            store.watch(CONFIG_MAPS, after=version - 1)
        watch = store.watch(CONFIG_MAPS, after=version)
        await store.create(CONFIG_MAPS, config("new"), "default")
        assert (await watch.__anext__()).version == version + 1
        await store.close()

    asyncio.run(body())


def test_a_restored_older_copy_reuses_no_version(tmp_path: Path) -> None:
    path, copy = tmp_path / "data.db", tmp_path / "copy.db"

    async def body() -> None:
        await fill(path, 3)
        copy.write_bytes(path.read_bytes())
        highest = 0
        for _ in range(3):
            store = open_store(path)
            await store.create(CONFIG_MAPS, config("later"), "default")
            assert store.version > highest
            highest = store.version
            await store.close()
            path.write_bytes(copy.read_bytes())
            store = open_store(path)
            assert [stored.name for stored in (await store.list(CONFIG_MAPS)).items] == ["c0", "c1", "c2"]
            with pytest.raises(Expired, match="too old resource version"):
                store.watch(CONFIG_MAPS, after=highest)
            assert store.version > highest
            highest = store.version
            await store.close()
            store = open_store(path)
            assert store.version == highest, "it goes on from there, though nothing was written"
            await store.close()
            path.write_bytes(copy.read_bytes())

    asyncio.run(body())


def test_objects_of_unknown_kinds_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "data.db"

    async def body() -> None:
        store = open_store(path)
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        await store.create(WIDGETS, widget(), "default")
        await store.close()
        known = kinds.registry()
        store = Store.open(path, known)
        known.add(next(kind for kind in registry() if kind.kind == "Widget"))
        assert (await store.get(WIDGETS, "w", "default")).name == "w"
        await store.close()

    asyncio.run(body())


def test_a_second_process_is_rejected_with_the_id_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "data.db"

    async def body() -> None:
        store = open_store(path)
        with pytest.raises(DataFileError, match=r"is in use by another process \(process \d+\); stop that first"):
            open_store(path)
        code = (
            "import sys, pathlib\n"
            "from wharfinger.api.kinds import registry\n"
            "from wharfinger.store import Store\n"
            "try: Store.open(pathlib.Path(sys.argv[1]), registry())\n"
            "except Exception as error: print(type(error).__name__, error)\n"
        )
        command = [sys.executable, "-c", code, str(path)]
        answer = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        assert "DataFileError" in answer.stdout and "is in use by another process" in answer.stdout
        await store.close()
        await open_store(path).close()

    asyncio.run(body())


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE objects (a)")


def with_schema(path: Path, version: int) -> None:
    asyncio.run(fill(path, 1))
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


def newer_schema(path: Path) -> None:
    with_schema(path, 99)


def no_schema(path: Path) -> None:
    with_schema(path, 0)


def text(path: Path) -> None:
    path.write_text("not a database at all, but long enough to look at\n" * 100)


def empty(path: Path) -> None:
    path.touch()


def truncated(path: Path) -> None:
    asyncio.run(fill(path))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def truncated_to_its_head(path: Path) -> None:
    asyncio.run(fill(path))
    path.write_bytes(path.read_bytes()[:60])


def flipped(within: bytes) -> Any:
    """Flips one bit in the first occurrence of these bytes."""

    def damage(path: Path) -> None:
        asyncio.run(fill(path))
        data = bytearray(path.read_bytes())
        data[data.index(within) + len(within) // 2] ^= 0x10
        path.write_bytes(data)

    return damage


def page_destroyed(path: Path) -> None:
    asyncio.run(fill(path))
    data = bytearray(path.read_bytes())
    data[3 * 4096 : 3 * 4096 + 100] = b"\xff" * 100
    path.write_bytes(data)


def without_tables(path: Path) -> None:
    asyncio.run(fill(path, 1))
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE state")
    connection.commit()
    connection.close()


def edited(path: Path) -> None:
    asyncio.run(fill(path, 1))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE objects SET name = 'other' WHERE plural = 'configmaps'")
    connection.commit()
    connection.close()


REFUSED = [
    (foreign, "is an SQLite file of another program"),
    (
        newer_schema,
        "was written by a newer version of Wharfinger (data schema 99, and this one knows 1); it was left as",
    ),
    (no_schema, "has data schema 0, which no version of Wharfinger wrote; it was left as it is"),
    (text, "is not an SQLite file"),
    (empty, "is empty"),
    (truncated, "is damaged"),
    (truncated_to_its_head, "is an SQLite file of another program"),
    (flipped(b"yyyy"), "is damaged"),
    (flipped(b"configmaps"), "is damaged"),
    (flipped(b"CREATE TABLE objects"), "is damaged"),
    (page_destroyed, "is damaged"),
    (without_tables, "is damaged"),
    (edited, "is damaged"),
]


@pytest.mark.parametrize(("damage", "text"), REFUSED)
def test_a_damaged_file_is_rejected_and_left_unchanged(tmp_path: Path, damage: Any, text: str) -> None:
    path = tmp_path / "data.db"
    damage(path)
    before = path.read_bytes()
    with pytest.raises(DataFileError) as caught:
        open_store(path)
    assert text in str(caught.value) and str(path) in str(caught.value)
    assert path.read_bytes() == before
    path.unlink()
    asyncio.run(fill(path, 1))  # no lock is left behind: the path can be used again


def test_a_directory_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="cannot be opened"):
        open_store(tmp_path)


def test_leftovers_of_a_crash_during_creation_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    Path(f"{path}.new").write_text("half a file")
    Path(f"{path}.lock").write_text("12345\n")
    asyncio.run(fill(path, 1))


def test_a_write_that_cannot_become_durable_is_rejected_and_rolled_back(tmp_path: Path) -> None:
    async def body() -> None:
        store = open_store(tmp_path / "data.db")
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        await store.create(CONFIG_MAPS, config("kept", data={"a": "1"}), "default")
        watch = store.watch(CONFIG_MAPS, after=store.version)
        connection = store._ledger._backend._connection  # type: ignore[attr-defined]
        connection.execute("PRAGMA query_only = ON")
        outcomes = await asyncio.gather(
            store.create(CONFIG_MAPS, config("lost"), "default"),
            store.patch(CONFIG_MAPS, "kept", {"data": {"a": "2"}}, "default", type=MERGE),
            store.delete(CONFIG_MAPS, "kept", "default"),
            return_exceptions=True,
        )
        assert all(isinstance(outcome, ServiceUnavailable) for outcome in outcomes), outcomes
        assert store.peek(CONFIG_MAPS, "lost", "default") is None
        kept = store.peek(CONFIG_MAPS, "kept", "default")
        assert kept is not None and kept.document()["data"] == {"a": "1"}
        connection.execute("PRAGMA query_only = OFF")
        await store.create(CONFIG_MAPS, config("later"), "default")
        event = await watch.__anext__()
        assert event.object is not None and event.object.name == "later"
        await store.close()

    asyncio.run(body())


def test_readers_see_a_write_only_when_it_is_durable(tmp_path: Path) -> None:
    async def body() -> None:
        store = open_store(tmp_path / "data.db")
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        writing = asyncio.ensure_future(store.create(CONFIG_MAPS, config(), "default"))
        await asyncio.sleep(0)
        assert store.peek(CONFIG_MAPS, "c", "default") is not None, "taken at once"
        assert (await store.list(CONFIG_MAPS)).items == [], "but not shown before it is on disk"
        await writing
        assert len((await store.list(CONFIG_MAPS)).items) == 1
        await store.close()

    asyncio.run(body())


class RecordingListener:
    def __init__(self) -> None:
        self.durable_up_to = 0
        self.errors: list[str] = []

    def durable(self, version: int) -> None:
        self.durable_up_to = version

    def failed(self, error: OSError) -> None:
        self.errors.append(str(error))


def test_commits_after_a_failure_are_dropped_until_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def row(number: int) -> Row:
        return Row(number, number, "", "configmaps", "d", f"c{number}", "u", b"{}")

    async def body() -> None:
        file, heard = DataFile(tmp_path / "data.db"), RecordingListener()
        write, go, written = file._write, threading.Event(), []

        def slow(rows: Sequence[Row], version: int) -> None:
            go.wait(60)
            if version == 4:
                raise OSError("no space left")
            write(rows, version)
            written.append([one.version for one in rows])

        monkeypatch.setattr(file, "_write", slow)
        file.commit([row(2)], 2, heard)
        while file._queue:  # taken up by the thread
            await asyncio.sleep(0.001)
        file.commit([row(3)], 3, heard)
        file.commit([row(4)], 4, heard)
        go.set()
        while not file._broken:
            await asyncio.sleep(0.001)
        file.commit([row(5)], 5, heard)
        while not heard.errors:
            await asyncio.sleep(0.001)
        assert (heard.durable_up_to, heard.errors, written) == (2, ["no space left"], [[2]])
        file.resume()
        file.commit([row(6)], 6, heard)
        while heard.durable_up_to != 6:
            await asyncio.sleep(0.001)
        file.close()
        again = DataFile(tmp_path / "data.db")
        version, rows = again.load()
        assert (version, [one.name for one in rows]) == (6, ["c2", "c6"])
        again.close()

    asyncio.run(body())


@pytest.mark.parametrize("count", [1, 64, 65, 200])
def test_large_commits_are_complete(tmp_path: Path, count: int) -> None:
    async def body() -> None:
        store = open_store(tmp_path / "data.db")
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        await asyncio.gather(*(store.create(CONFIG_MAPS, config(f"c{n}"), "default") for n in range(count)))
        await asyncio.gather(*(store.delete(CONFIG_MAPS, f"c{n}", "default") for n in range(0, count, 2)))
        version = store.version
        await store.close()
        again = open_store(tmp_path / "data.db")
        assert again.version == version
        names = {stored.name for stored in (await again.list(CONFIG_MAPS)).items}
        assert names == {f"c{n}" for n in range(1, count, 2)}
        await again.close()

    asyncio.run(body())
