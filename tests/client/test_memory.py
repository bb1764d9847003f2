from __future__ import annotations

import subprocess
import sys

import pytest

HOLES = """
from pathlib import Path
from wharfinger.client.memory import return_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4 // 1024  # MiB

objects = [bytes(600) for _ in range(200_000)]
last = objects[-1]
objects = objects[::20]
before = resident()
return_freed_memory()
print(before - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_in_the_middle_of_the_heap_is_returned() -> None:
    ended = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert int(ended.stdout) > 40
