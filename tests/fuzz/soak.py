"""One hour of churn on `wharf up`: pods come and go, and memory, files, descriptors and latency must stay flat.

    python -m tests.fuzz.soak --minutes 60 --rate 20

Prints one line a minute, and at the end how the last quarter compares with the second.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from tests.apiserver.running import Api
from tests.fuzz.embedded import Embedded, processes, processor_seconds

LIVING = 200  # pods that are there at a time
MODULE = "wharfinger.cli.main"  # in the command lines of the parts, before their names


@dataclass(frozen=True, slots=True)
class SoakSample:
    minute: int
    memory: int  # bytes, of all processes
    memories: dict[str, int]  # bytes, by part of `wharf up`
    descriptors: int
    file_size: int  # bytes, of the data directory without logs
    latency: float  # milliseconds, the median of creations
    processor: float  # seconds of processor time since the start, of all processes
    used: float  # of them since the last sample

    def text(self) -> str:
        parts = ", ".join(f"{name} {size >> 20}" for name, size in self.memories.items())
        return (
            f"minute {self.minute}: memory {self.memory >> 20} MiB ({parts}), descriptors {self.descriptors}, "
            f"data {self.file_size >> 10} KiB, create {self.latency:.1f} ms, processor {self.used:.1f} s"
        )


def sample(samples: list[SoakSample], root: int, directory: Path, latencies: list[float]) -> SoakSample:
    """One more, after those before."""
    memories, descriptors = dict[str, int](), 0
    for each in processes(root):
        process = Path("/proc", str(each))
        try:
            resident = int((process / "statm").read_text().split()[1]) * 4096
            descriptors += len(list((process / "fd").iterdir()))
            arguments = (process / "cmdline").read_text().split("\0")
        except OSError:
            continue
        name = arguments[arguments.index(MODULE) + 1] if MODULE in arguments else "up"
        memories[name] = memories.get(name, 0) + resident
    size = sum(each.stat().st_size for each in directory.glob("*") if each.is_file())
    processor, before = processor_seconds(root), samples[-1].processor if samples else 0.0
    latency = statistics.median(latencies or [0.0]) * 1000
    used = processor - before
    return SoakSample(len(samples) + 1, sum(memories.values()), memories, descriptors, size, latency, processor, used)


def pod(number: int) -> dict[str, object]:
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}]}
    return {"metadata": {"name": f"churn-{number}"}, "spec": {**spec, "terminationGracePeriodSeconds": 1}}


def churn(api: Api, root: int, directory: Path, minutes: float, rate: float) -> list[SoakSample]:
    path, living, samples = "/api/v1/namespaces/default/pods", deque[int](), list[SoakSample]()
    began, number, latencies = time.monotonic(), 0, []
    due = began
    while time.monotonic() - began < minutes * 60:
        time.sleep(max(0.0, due - time.monotonic()))
        sent = time.monotonic()
        due = max(due + 1 / rate, sent - 1)  # what a busy machine did not do for more than a second is not made up for
        answer = api.ask("POST", path, pod(number))
        assert answer.status == 201, answer.data
        latencies.append(time.monotonic() - sent)
        living.append(number)
        number += 1
        if len(living) > LIVING:
            assert api.ask("DELETE", f"{path}/churn-{living.popleft()}").status in (200, 404)
        if time.monotonic() - began >= (len(samples) + 1) * 60:
            samples.append(sample(samples, root, directory, latencies))
            latencies = []
            print(samples[-1].text(), flush=True)
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=20, help="pods a second")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # stops what was started
    with tempfile.TemporaryDirectory(prefix="wharf-soak-") as directory:
        embedded = Embedded(Path(directory) / "data")
        embedded.start()
        try:
            samples = churn(embedded.api(), embedded.pid, embedded.directory, options.minutes, options.rate)
        finally:
            embedded.kill()
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    compared = {
        name: [round(statistics.mean(getattr(each, name) for each in part), 1) for part in (early, late)]
        for name in ("memory", "descriptors", "file_size", "latency", "used")
    }
    print(json.dumps({"minutes": options.minutes, "rate": options.rate, "secondQuarterAndLast": compared}))


if __name__ == "__main__":
    main()
