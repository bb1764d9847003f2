"""YAML that is written here means the same to every reader."""

import random
from typing import Any

import pytest
import yaml

from wharfinger.api.yaml_reader import read
from wharfinger.cli.yaml_text import yaml_text

PIECES = [
    *("a", "1", "0", "x", "e", "+", "-", ".", ":", " ", "#", "\n", "\t", "'", '"', "{", "}", "[", "]", ",", "&", "*"),
    *("!", "|", ">", "%", "@", "`", "~", "yes", "no", "null", "true", "2026-01-01", "é", "\u2028", "\ufeff", "😀"),
    *("\x07", "\\", "<<", "=", "?", "Gi", "m", "/", "_"),
]


def made_up(rng: random.Random, depth: int = 0) -> Any:
    choice = rng.randrange(9)
    if depth > 3 or choice < 4:
        return "".join(rng.choices(PIECES, k=rng.randrange(6)))
    if choice == 4:
        return rng.choice([None, True, False, 0, -5, 1.5, 1e300])
    if choice < 7:
        return {"".join(rng.choices(PIECES, k=2)): made_up(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [made_up(rng, depth + 1) for _ in range(rng.randrange(4))]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_is_read_back(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        value = made_up(rng)
        text = yaml_text(value) + "\n"
        reading = read(text)
        assert (reading.value, reading.faults, reading.repaired) == (value, [], []), text
        assert yaml.safe_load(text) == value, text


def test_it_looks_as_people_expect() -> None:
    value = {
        "metadata": {"name": "web-1", "labels": {"app.kubernetes.io/name": "web"}, "annotations": {}},
        "spec": {"cidrs": ["10.0.0.0/24"], "cpu": "2", "memory": "64Gi", "on": "yes", "args": [["-c", "a\nb\n"]]},
        "time": "2026-01-01T00:00:00Z",
    }
    assert (
        yaml_text(value)
        == """metadata:
  name: web-1
  labels:
    app.kubernetes.io/name: web
  annotations: {}
spec:
  cidrs:
  - 10.0.0.0/24
  cpu: "2"
  memory: 64Gi
  "on": "yes"
  args:
  - - "-c"
    - |
      a
      b
time: "2026-01-01T00:00:00Z\""""
    )
