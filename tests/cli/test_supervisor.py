"""What `wharf up` does where its own files cannot be written, and what it shows of logs."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from wharfinger.cli.supervisor import ControlPlaneOptions, Supervisor, tail


def test_only_what_was_written_since_a_start_is_shown_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of the last time\n")
    start = log.stat().st_size
    assert tail(log, start) == "  (empty)"
    with log.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(20))
    assert tail(log, start, lines=30).splitlines()[0] == "  line 0"
    assert tail(log, start, lines=2).splitlines() == ["  line 18", "  line 19"]
    assert tail(tmp_path / "none") == "  (no log)"


def test_a_state_that_cannot_be_written_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    async def body() -> list[str]:
        said: list[str] = []
        supervisor = Supervisor(ControlPlaneOptions(tmp_path / "d", 0, 0), said.append)
        shutil.rmtree(tmp_path / "d")
        supervisor._note()
        supervisor._note()
        (tmp_path / "d").mkdir()
        supervisor._note()
        assert (tmp_path / "d" / "run.json").exists()
        shutil.rmtree(tmp_path / "d")
        supervisor._note()
        return said

    said = asyncio.run(body())
    assert len(said) == 2
    assert said[0].startswith(f"cannot write {tmp_path / 'd'}: No such file or directory")
