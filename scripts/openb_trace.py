"""Makes a trace in the `openb` form, smaller than the published one and with the same statistics.

`python scripts/openb_trace.py examples/replay` writes `nodes.csv` and `pods.csv` there, the same for the same seed.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

NODE_HEADER = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_HEADER = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)

#: CPU, memory, GPUs and model of a kind of node, and how many of a thousand nodes are of it.
NODES = (
    (96_000, 393_216, 8, "G2", 453),
    (104_000, 524_288, 2, "T4", 319),
    (16_000, 122_880, 2, "P100", 88),
    (128_000, 786_432, 8, "G3", 32),
    (32_000, 131_072, 4, "V100M16", 23),
    (64_000, 262_144, 2, "P100", 18),
    (96_000, 786_432, 8, "V100M32", 17),
    (8_000, 32_768, 1, "V100M16", 16),
    (96_000, 393_216, 4, "T4", 14),
    (48_000, 376_832, 4, "V100M32", 7),
    (64_000, 262_144, 8, "V100M16", 6),
    (8_000, 61_440, 1, "P100", 3),
    (128_000, 1_048_576, 1, "A10", 2),
)

#: GPUs, thousandths of each, CPU and memory of a kind of pod, and how many of a thousand pods are of it.
PODS = (
    (0, 0, 12_500, 57_344, 50),
    (0, 0, 32_000, 49_152, 38),
    (0, 0, 8_000, 30_517, 25),
    (0, 0, 16_000, 51_200, 20),
    (1, 110, 4_000, 15_258, 4),
    (1, 160, 4_000, 15_258, 9),
    (1, 220, 4_000, 22_888, 8),
    (1, 230, 4_000, 30_517, 18),
    (1, 320, 4_000, 22_888, 29),
    (1, 320, 8_000, 30_517, 11),
    (1, 370, 4_152, 10_600, 6),
    (1, 460, 6_000, 12_288, 16),
    (1, 470, 8_000, 30_517, 46),
    (1, 470, 11_908, 47_104, 48),
    (1, 550, 4_152, 10_600, 9),
    (1, 590, 3_152, 5_600, 9),
    (1, 650, 11_908, 47_104, 31),
    (1, 810, 3_152, 5_600, 132),
    (1, 1000, 3_152, 5_600, 58),
    (1, 1000, 4_000, 24_576, 22),
    (1, 1000, 8_000, 16_384, 26),
    (1, 1000, 9_810, 41_560, 25),
    (1, 1000, 11_300, 49_152, 108),
    (1, 1000, 11_400, 48_128, 80),
    (1, 1000, 12_000, 24_576, 62),
    (1, 1000, 14_200, 58_368, 12),
    (1, 1000, 15_700, 58_368, 24),
    (1, 1000, 16_000, 32_768, 23),
    (1, 1000, 18_708, 64_512, 31),
    (1, 1000, 24_200, 93_184, 10),
    (2, 1000, 16_200, 65_536, 2),
    (4, 1000, 32_200, 131_072, 2),
    (8, 1000, 64_200, 263_168, 3),
    (8, 1000, 88_000, 327_680, 3),
)

QUALITIES = (("LS", 55), ("BE", 42), ("Burstable", 2), ("Guaranteed", 1))
PHASES = (("Running", 64), ("Failed", 23), ("Pending", 11), ("Succeeded", 2))
SPAN = 12_900_000  # seconds in which pods are created


def nodes(count: int) -> Iterable[Sequence[object]]:
    """As many of each kind as there would be in a cluster of that size, the most frequent first."""
    left = count
    made = []
    for cpu, memory, devices, model, weight in NODES:
        number = min(left, max(1, round(count * weight / 1000)))
        left -= number
        made += [(cpu, memory, devices, model)] * number
    made += [NODES[0][:4]] * left
    return [(f"node-{index:04}", *each) for index, each in enumerate(made)]


def pods(count: int, restricted: float, rng: random.Random) -> Iterable[Sequence[object]]:
    models = [model for _, _, _, model, _ in NODES]
    weights = [devices * weight for _, _, devices, _, weight in NODES]
    made = []
    for index in range(count):
        devices, milli, cpu, memory, _ = rng.choices(PODS, [each[-1] for each in PODS])[0]
        spec = ""
        if devices and rng.random() < restricted:
            spec = "|".join(sorted(set(rng.choices(models, weights, k=rng.choice((1, 1, 1, 2, 3))))))
        created = rng.randrange(SPAN)
        phase = _one_of(PHASES, rng)
        scheduled: int | str = "" if phase == "Pending" else created + rng.choice((0, 0, 0, 5, 60))
        deleted = created + 60 + int(rng.lognormvariate(6.3, 1.7))
        quality = _one_of(QUALITIES, rng)
        row = (cpu, memory, devices, milli, spec, quality, phase, created, deleted, scheduled)
        made.append((f"pod-{index:04}", *row))
    return made


def _one_of(choices: Sequence[tuple[str, int]], rng: random.Random) -> str:
    return rng.choices([name for name, _ in choices], [weight for _, weight in choices])[0]


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--pods", type=int, default=400)
    parser.add_argument("--restricted", type=float, default=0.33, help="share of GPU pods that name models")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    _write(given.folder / "nodes.csv", NODE_HEADER, nodes(given.nodes))
    _write(given.folder / "pods.csv", POD_HEADER, pods(given.pods, given.restricted, random.Random(given.seed)))


if __name__ == "__main__":
    main()
