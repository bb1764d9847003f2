"""`wharf up` on real files is killed again and again under load: no acknowledged write is lost, every start succeeds, and
the time to ready stays flat.

    python -m tests.fuzz.embedded --kills 1000 --seed 1

Between kills, some episodes: the disk is full (a limit on the size of files), a write to the log of the data file is torn
(half a page of anything at its end), and an older copy of the data file is put back (then everything acknowledged since is
gone). With `--episodes N`, each happens about every N kills.

With `--directory`, data and counts are kept there, and a run that was stopped is continued: `--kills` is the total.
"""

from __future__ import annotations

import argparse
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
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.apiserver.running import Api, environment

READY = 180.0  # seconds in which a start must succeed, on a busy machine
EPISODES = 25  # kills between two disks that are full; other episodes have their own turn
TORN = 2500  # bytes: less than a page of the log
WRITERS = 4
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

    def start(self, file_limit: int | None = None) -> float:
        """Starts it and returns the seconds until it was ready. Raises AssertionError if that fails."""

        def limit() -> None:
            if file_limit is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

        began = time.monotonic()
        log = (self.directory.parent / "up.log").open("ab")
        command = [sys.executable, "-m", "wharfinger.cli.main", "up", "--port", "0", "--nodes", "3"]
        self._process = subprocess.Popen(
            [*command, "--data-dir", str(self.directory)],
            stdout=log,
            stderr=log,
            env=environment(),
            start_new_session=True,
            preexec_fn=limit,
        )
        log.close()
        while time.monotonic() - began < READY:
            assert self._process.poll() is None, "wharf up ended by itself; see up.log"
            with suppress(*_NETWORK, ValueError, KeyError, FileNotFoundError):
                if self.api().ask("GET", "/readyz").status == 200:
                    return time.monotonic() - began
            time.sleep(0.1)
        raise AssertionError(f"wharf up was not ready within {READY:.0f} seconds; see up.log")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def api(self) -> Api:
        return Api(self.directory / "kubeconfig")

    def kill(self) -> None:
        """Kills all its processes at once, as a power failure would end them; nothing if it does not run."""
        if self._process is None or self._process.poll() is not None:
            return
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
        self.unknown: str = ""  # the name of the write that was not answered
        self.version = 0  # the highest one that was acknowledged
        self.writes = 0
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
        self.unknown = name
        if not exists:
            answer, result = self._api.ask("POST", path, body), value
        elif self._rng.random() < 0.7:
            answer, result = self._api.ask("PUT", f"{path}/{name}", body), value
        else:
            answer, result = self._api.ask("DELETE", f"{path}/{name}"), None
        if answer.status in (200, 201):
            self.unknown = ""
            self.acknowledged[name] = result
            self.writes += 1
            if result is not None:
                self.version = max(self.version, int(answer.json["metadata"]["resourceVersion"]))
        elif answer.status in (404, 409):
            self.unknown = ""
            self.acknowledged[name] = None if answer.status == 404 else self._read(name)
        else:
            time.sleep(0.05)  # the disk is full

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


@dataclass(slots=True)
class KillProgress:
    """What a campaign has done and knows; kept in a file between its kills."""

    kills: int = 0
    writes: int = 0
    episodes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # until ready, of each start
    known: list[dict[str, str | None]] = field(default_factory=lambda: [{} for _ in range(WRITERS)])
    unknown: list[str] = field(default_factory=list)  # names of writes that were not answered
    highest: int = 0  # version that was acknowledged
    interrupted: bool = False  # stopped in the middle: what was acknowledged since is not known

    def save(self, file: Path) -> None:
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self)))
        fresh.replace(file)

    @classmethod
    def read(cls, file: Path) -> KillProgress:
        if not file.exists():
            return cls()
        found = cls(**json.loads(file.read_text()))
        found.episodes = Counter(found.episodes)
        return found


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
        progress.seconds.append(self._embedded.start(self._size() + 200_000 if full else None))
        self._verify(number)
        progress.interrupted = True
        progress.save(self._file)
        self._load(4.0 if full else self._rng.uniform(0.05, 2.0))
        progress.episodes["disk full"] += full
        if turn == self._episodes // 4:
            shutil.rmtree(self._copy, ignore_errors=True)
            shutil.copytree(self._embedded.directory, self._copy)
        elif turn == self._episodes // 2:
            self._tear()
        elif turn == 3 * self._episodes // 4 and self._copy.exists():
            self._put_back()
        progress.kills, progress.interrupted = number + 1, False
        progress.save(self._file)
        if progress.kills % 10 == 0:
            print(
                f"{progress.kills} kills, {progress.writes} writes, ready after {progress.seconds[-1]:.1f} s",
                flush=True,
            )

    def report(self) -> dict[str, object]:
        progress = self.progress
        tenth = max(1, len(progress.seconds) // 10)
        return {
            "kills": progress.kills,
            "writes": progress.writes,
            "episodes": dict(progress.episodes),
            "readyFirst": round(statistics.median(progress.seconds[:tenth] or [0.0]), 2),
            "readyLast": round(statistics.median(progress.seconds[-tenth:] or [0.0]), 2),
        }

    def _size(self) -> int:
        return max((each.stat().st_size for each in self._embedded.directory.rglob("*") if each.is_file()), default=0)

    def _load(self, seconds: float) -> None:
        """Writes until everything is killed, at a random moment."""
        api = self._embedded.api()
        writers = [
            LoadWriter(api, index, random.Random(self._rng.random()), known)
            for index, known in enumerate(self.progress.known)
        ]
        for each in writers:
            each.start()
        time.sleep(seconds)
        self._embedded.kill()
        for each in writers:
            each.stopping = True
            each.join(60)
            self.progress.writes += each.writes
            self.progress.highest = max(self.progress.highest, each.version)
        self.progress.unknown = [each.unknown for each in writers if each.unknown]

    def _verify(self, number: int) -> None:
        progress = self.progress
        version, found = stored(self._embedded.api())
        if not progress.interrupted:
            known = {name: value for each in progress.known for name, value in each.items()}
            missing = lost(known, set(progress.unknown), found)
            assert not missing, f"kill {number}: lost {missing}"
            assert version >= progress.highest, f"kill {number}: version {version} after {progress.highest}"
        progress.highest = version
        self._adopt(found)

    def _adopt(self, found: dict[str, str]) -> None:
        """From now on, what is stored is what is known."""
        for index, each in enumerate(self.progress.known):
            each.clear()
            each.update({name: value for name, value in found.items() if name.startswith(f"w{index}-")})
        self.progress.unknown = []

    def _tear(self) -> None:
        """A page that was being written when the power failed is there in part."""
        for log in self._embedded.directory.rglob("*-wal"):
            with log.open("ab") as file:
                file.write(self._rng.randbytes(TORN))
            self.progress.episodes["torn"] += 1

    def _put_back(self) -> None:
        """An older copy of everything: what was acknowledged since is gone; versions still only grow."""
        shutil.rmtree(self._embedded.directory)
        shutil.copytree(self._copy, self._embedded.directory)
        self._embedded.start()
        _, found = stored(self._embedded.api())
        self._adopt(found)
        self.progress.highest = 0  # the note of how far versions had been given is in the copy, too
        self.progress.episodes["older file"] += 1
        self._embedded.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="in total")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=EPISODES, help="kills between two episodes of a kind")
    parser.add_argument("--directory", type=Path, help="continue what was begun here; otherwise nothing is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wharf-kills-") as temporary:
        directory: Path = options.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        campaign = KillCampaign(directory, options.seed, options.episodes)
        campaign.run(options.kills)
        print(json.dumps(campaign.report()))


if __name__ == "__main__":
    main()
