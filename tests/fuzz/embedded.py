"""`wharf up` on real files is killed again and again under load: no acknowledged write is lost, every start succeeds, and
the time to ready stays flat.

    python -m tests.fuzz.embedded --kills 1000 --seed 1

Between kills, some episodes: the disk is full (a limit on the size of files) and has room again, a write to the log of the data file is torn
(half a page of anything at its end), an older copy of the data file is put back (then everything acknowledged since is
gone, and nothing else), and a start is killed before it is ready. With `--episodes N`, each happens about every N kills.

With `--directory`, data and counts are kept there, and a run that was stopped is continued: `--kills` is the total. The
processor time to ready says more than the time on the clock where others use the machine, too.
"""

from __future__ import annotations

import argparse
import copy
import http.client
import json
import os
import random
import resource
import shutil
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from tests.apiserver.running import Api, environment

READY = 180.0  # seconds in which a start must succeed, on a busy machine
EPISODES = 25  # kills between two disks that are full; other episodes have their own turn
SHORTEST, LONGEST = 0.02, 0.8  # seconds of load before a kill
NEARLY_FULL = 1.0  # seconds in which the last room on the disk is used up
REACTION = 60.0  # seconds in which writes are refused once the disk is full, and accepted once it is not
TORN = 2500  # bytes: less than a page of the log
WRITERS = 4
_TICKS = os.sysconf("SC_CLK_TCK")
_NETWORK = (OSError, http.client.HTTPException, ssl.SSLError)


def processes(root: int) -> list[int]:
    """A process and all that it started, directly or not."""
    parents: dict[int, int] = {}
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
    found = {root}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def processor_seconds(root: int) -> float:
    """The processor time of a process and all that it started, directly or not."""
    ticks = 0
    for each in processes(root):
        with suppress(OSError):
            ticks += sum(map(int, Path("/proc", str(each), "stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / _TICKS


def _runs(process: int) -> bool:
    try:
        return Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Embedded:
    """One data directory, and the `wharf up` that runs on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Starts it and returns the seconds until it was ready. Raises AssertionError if that fails."""
        began = time.monotonic()
        self.launch()
        assert self._process is not None
        while time.monotonic() - began < READY:
            assert self._process.poll() is None, "wharf up ended by itself; see up.log"
            with suppress(*_NETWORK, ValueError, KeyError, FileNotFoundError):
                if self.api().ask("GET", "/readyz").status == 200:
                    return time.monotonic() - began
            time.sleep(0.02)
        raise AssertionError(f"wharf up was not ready within {READY:.0f} seconds; see up.log")

    def launch(self) -> None:
        """Starts it without waiting."""
        log = (self.directory.parent / "up.log").open("ab")
        command = [sys.executable, "-m", "wharfinger.cli.main", "up", "--port", "0", "--nodes", "3"]
        self._process = subprocess.Popen(
            [*command, "--data-dir", str(self.directory)],
            stdout=log,
            stderr=log,
            env=environment(),
            start_new_session=True,
        )
        log.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def limit_files(self, size: int) -> None:
        """From now on, nothing is written to a file beyond this size: to the processes, the disk is full."""
        for each in processes(self.pid):
            with suppress(ProcessLookupError):
                resource.prlimit(each, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def api(self) -> Api:
        return Api(self.directory / "kubeconfig")

    def kill(self) -> None:
        """Kills all its processes at once, as a power failure would end them; nothing if it does not run."""
        if self._process is None or self._process.poll() is not None:
            return
        os.kill(self._process.pid, signal.SIGSTOP)  # it starts nothing more that would be missed
        everything = processes(self._process.pid)
        for each in reversed(everything):  # its own process last: when that ends, the others are asked to stop
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._process.wait()
        while any(map(_runs, everything)):
            time.sleep(0.01)
        (self.directory / "kubeconfig").unlink(missing_ok=True)  # the next start writes a new one, with its port


class LoadWriter(threading.Thread):
    """Writes ConfigMaps of its own, and remembers what was acknowledged and what may or may not have happened."""

    def __init__(self, api: Api, number: int, rng: random.Random, known: dict[str, str | None]) -> None:
        super().__init__(daemon=True)
        self._api, self._number, self._rng = api, number, rng
        self.acknowledged = known  # by name: the value, or None if it is deleted
        self.unknown: set[str] = set()  # names of which the last write was not acknowledged
        self.contradicted: list[str] = []  # answers that contradict what was acknowledged
        self.version = 0  # the highest one that was acknowledged
        self.writes = 0
        self.refusals = 0  # for want of room on the disk
        self.stopping = False

    def run(self) -> None:
        with suppress(*_NETWORK):
            while not self.stopping:
                self._write(f"w{self._number}-{self._rng.randint(0, 5)}")

    def _write(self, name: str) -> None:
        path = "/api/v1/namespaces/default/configmaps"
        value = str(self._rng.random()) + "x" * self._rng.choice((1, 100, 20_000))
        body = {"metadata": {"name": name}, "data": {"value": value}}
        exists = self.acknowledged.get(name) is not None
        doubtful = name in self.unknown
        self.unknown.add(name)
        if not exists:
            answer, result = self._api.ask("POST", path, body), value
        elif self._rng.random() < 0.7:
            answer, result = self._api.ask("PUT", f"{path}/{name}", body), value
        else:
            answer, result = self._api.ask("DELETE", f"{path}/{name}"), None
        if answer.status in (200, 201):
            self.unknown.discard(name)
            self.acknowledged[name] = result
            self.writes += 1
            if result is not None:
                self.version = max(self.version, int(answer.json["metadata"]["resourceVersion"]))
        elif answer.status in (404, 409):
            if not doubtful:
                self.contradicted.append(answer.message)
            self.acknowledged[name] = None if answer.status == 404 else self._read(name)
            self.unknown.discard(name)
        else:
            self.refusals += 1
            time.sleep(0.05)

    def _read(self, name: str) -> str | None:
        answer = self._api.ask("GET", f"/api/v1/namespaces/default/configmaps/{name}")
        return None if answer.status == 404 else answer.json["data"]["value"]


def stored(api: Api) -> tuple[int, dict[str, str]]:
    listing: Any = api.get("/api/v1/namespaces/default/configmaps")
    items = {each["metadata"]["name"]: each["data"]["value"] for each in listing["items"] if "value" in each["data"]}
    return int(listing["metadata"]["resourceVersion"]), items


def lost(known: dict[str, str | None], unknown: set[str], found: dict[str, str]) -> list[str]:
    """The acknowledged writes that are not there."""
    return sorted(name for name, value in known.items() if name not in unknown and found.get(name) != value)


class KnownWrites(msgspec.Struct):
    """What is known of what was written at some moment."""

    values: list[dict[str, str | None]] = msgspec.field(default_factory=lambda: [{} for _ in range(WRITERS)])
    unknown: set[str] = set()  # names of which the last write was not acknowledged
    highest: int = 0  # version that was acknowledged


class KillProgress(msgspec.Struct):
    """What a campaign has done and knows; kept in a file between its kills."""

    kills: int = 0
    writes: int = 0
    episodes: dict[str, int] = {}
    seconds: list[float] = []  # until ready, of each start
    processor: list[float] = []  # seconds of processor time until ready, of each start
    known: KnownWrites = msgspec.field(default_factory=KnownWrites)
    copied: KnownWrites | None = None  # the same when the older copy was made
    interrupted: bool = False  # stopped in the middle: what was acknowledged since is not known

    def save(self, file: Path) -> None:
        fresh = file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self))
        fresh.replace(file)

    @classmethod
    def read(cls, file: Path) -> KillProgress:
        return msgspec.json.decode(file.read_bytes(), type=cls) if file.exists() else cls()

    def count(self, episode: str) -> None:
        self.episodes[episode] = self.episodes.get(episode, 0) + 1


class KillCampaign:
    def __init__(self, directory: Path, seed: int, episodes: int = EPISODES) -> None:
        self._episodes = episodes
        self._seed = seed
        self._rng = random.Random(seed)  # one for each kill
        self._embedded = Embedded(directory / "data")
        self._copy = directory / "older"
        self._file = directory / "progress.json"
        self.progress = KillProgress.read(self._file)

    def run(self, kills: int) -> None:
        """Until there have been so many in total."""
        try:
            while self.progress.kills < kills:
                self._kill_once(self.progress.kills)
        finally:
            self._embedded.kill()

    def _kill_once(self, number: int) -> None:
        progress, self._rng = self.progress, random.Random(f"{self._seed} {number}")
        turn = number % self._episodes
        full = turn == self._episodes - 1
        if turn == self._episodes // 3:
            self._kill_while_starting()
        progress.seconds.append(round(self._embedded.start(), 3))
        progress.processor.append(round(processor_seconds(self._embedded.pid), 2))
        self._verify(number)
        progress.interrupted = True
        progress.save(self._file)
        self._load(full)
        if turn == self._episodes // 4:
            self._make_copy()
        elif turn == self._episodes // 2:
            self._tear()
        elif turn == 3 * self._episodes // 4 and progress.copied is not None:
            self._put_back(progress.copied)
        progress.kills, progress.interrupted = number + 1, False
        progress.save(self._file)
        if progress.kills % 10 == 0:
            print(
                f"{progress.kills} kills, {progress.writes} writes, ready after {progress.seconds[-1]:.1f} s, "
                f"{progress.processor[-1]:.1f} s of them on a processor",
                flush=True,
            )

    def report(self) -> dict[str, object]:
        progress = self.progress
        return {
            "kills": progress.kills,
            "writes": progress.writes,
            "episodes": progress.episodes,
            "readyFirst": _median(progress.seconds, first=True),
            "readyLast": _median(progress.seconds, first=False),
            "readyProcessorFirst": _median(progress.processor, first=True),
            "readyProcessorLast": _median(progress.processor, first=False),
        }

    def _load(self, full: bool) -> None:
        """Writes until everything is killed, at a random moment."""
        api, known = self._embedded.api(), self.progress.known
        writers = [
            LoadWriter(api, index, random.Random(self._rng.random()), values)
            for index, values in enumerate(known.values)
        ]
        for each in writers:
            each.start()
        time.sleep(self._rng.uniform(SHORTEST, LONGEST))
        if full:
            self._fill_disk(writers)
        self._embedded.kill()
        for each in writers:
            each.stopping = True
            each.join(60)
            self.progress.writes += each.writes
            known.highest = max(known.highest, each.version)
            assert not each.contradicted, f"what was acknowledged is not there: {each.contradicted}"
            known.unknown |= each.unknown

    def _fill_disk(self, writers: Sequence[LoadWriter]) -> None:
        """Some more is written, perhaps only part of a write, then nothing any more; half of the time, there is room again in
        the end."""
        logs = [each.stat().st_size for each in self._embedded.directory.rglob("*-wal")]
        self._embedded.limit_files(max(logs, default=0) + self._rng.randint(0, 60_000))
        full = time.monotonic() + NEARLY_FULL
        while not any(each.refusals for each in writers) and time.monotonic() < full:
            time.sleep(0.02)
        self._embedded.limit_files(0)
        _await("writes are refused while the disk is full", lambda: any(each.refusals for each in writers))
        self.progress.count("disk full")
        if self._rng.random() < 0.5:
            self._embedded.limit_files(resource.RLIM_INFINITY)
            before = sum(each.writes for each in writers)
            _await("writes are accepted once there is room", lambda: sum(each.writes for each in writers) > before)
            self.progress.count("room again")

    def _kill_while_starting(self) -> None:
        usual = statistics.median(self.progress.seconds[-10:] or [1.0])
        self._embedded.launch()
        time.sleep(self._rng.uniform(0.0, usual))
        self._embedded.kill()
        self.progress.count("killed while starting")

    def _verify(self, number: int) -> None:
        progress, known = self.progress, self.progress.known
        version, found = stored(self._embedded.api())
        if not progress.interrupted:
            written = {name: value for each in known.values for name, value in each.items()}
            missing = lost(written, known.unknown, found)
            assert not missing, f"kill {number}: lost {missing}"
            assert version >= known.highest, f"kill {number}: version {version} after {known.highest}"
        # From now on, what is stored is what is known.
        for index, each in enumerate(known.values):
            each.clear()
            each.update({name: value for name, value in found.items() if name.startswith(f"w{index}-")})
        known.unknown, known.highest = set(), version

    def _tear(self) -> None:
        """A page that was being written when the power failed is there in part."""
        for log in self._embedded.directory.rglob("*-wal"):
            with log.open("ab") as file:
                file.write(self._rng.randbytes(TORN))
            self.progress.count("torn")

    def _make_copy(self) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._embedded.directory, self._copy)
        self.progress.copied = copy.deepcopy(self.progress.known)

    def _put_back(self, known: KnownWrites) -> None:
        """An older copy of everything: what was acknowledged since is gone; what was acknowledged before is there. The note
        of how far versions had been given is in the copy, too."""
        shutil.rmtree(self._embedded.directory)
        shutil.copytree(self._copy, self._embedded.directory)
        self.progress.known = copy.deepcopy(known)
        self.progress.count("older file")


def _await(what: str, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + REACTION
    while not happened():
        assert time.monotonic() < deadline, f"not within {REACTION:.0f} seconds: {what}"
        time.sleep(0.02)


def _median(seconds: Sequence[float], *, first: bool) -> float:
    """Of the first or the last tenth."""
    tenth = max(1, len(seconds) // 10)
    return round(statistics.median((seconds[:tenth] if first else seconds[-tenth:]) or [0.0]), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="in total")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=EPISODES, help="kills between two episodes of a kind")
    parser.add_argument("--directory", type=Path, help="continue what was begun here; otherwise nothing is kept")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # stops what was started
    with tempfile.TemporaryDirectory(prefix="wharf-kills-") as temporary:
        directory: Path = options.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        campaign = KillCampaign(directory, options.seed, options.episodes)
        campaign.run(options.kills)
        print(json.dumps(campaign.report()))


if __name__ == "__main__":
    main()
