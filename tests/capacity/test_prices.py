"""The table of prices: rows in YAML and CSV, the most special row, and faults with their lines."""

from __future__ import annotations

import pytest

from wharfinger.capacity.prices import BadPrices, read_prices

YAML = """\
- {type: m5.large, price: 0.096, startup: 80s}
- {type: m5.large, price: 0.03, capacityType: spot}
- type: m5.large
  group: workers
  price: 0.09
- {group: metal, price: 3, startup: 600}
- {type: p4d, price: 32.7, cpu: 96, memory: 1152Gi, nvidia.com/gpu: 8}
"""
CSV = """\
type,group,capacityType,price,startup,cpu,memory,nvidia.com/gpu
# comment
m5.large,,,0.096,80s,,,

m5.large,,spot,0.03,,,,
m5.large,workers,,0.09,,,,
,metal,,3,600,,,
p4d,,,32.7,,96,1152Gi,8
"""


@pytest.mark.parametrize(("name", "text"), [("p.yaml", YAML), ("p.csv", CSV)])
def test_the_most_special_row_counts(name: str, text: str) -> None:
    table = read_prices(name, text)

    def price(*asked: str) -> float:
        row = table.find(*asked)
        return -1.0 if row is None else row.price

    assert price("m5.large") == 0.096
    assert price("m5.large", "other", "zone-a", "spot") == 0.03
    assert price("m5.large", "workers", "zone-a", "spot") == 0.09  # a row of the group comes first
    assert price("anything", "metal") == 3
    assert price("anything") == -1
    metal, large, gpu = table.find("x", "metal"), table.find("m5.large"), table.find("p4d")
    assert metal is not None and metal.startup == 600
    assert large is not None and large.startup == 80
    assert gpu is not None and gpu.size == {"cpu": "96", "memory": "1152Gi", "nvidia.com/gpu": "8"}


@pytest.mark.parametrize(
    ("name", "text", "faults"),
    [
        ("p.yaml", "- {type: a, price: 1}\n- {type: b}\n", ["p.yaml, line 2: needs a price"]),
        ("p.yaml", "- {price: 1}\n", ["p.yaml, line 1: needs a type or a group"]),
        (
            "p.yaml",
            "- {type: a, price: dear}\n- {type: b, price: -1}\n- {type: c, price: nan}\n",
            [f"p.yaml, line {line}: price: must be a number" for line in (1, 2, 3)],
        ),
        ("p.yaml", "- {type: a, price: 1, startup: soon}", ["p.yaml, line 1: startup: must be a time"]),
        ("p.yaml", "- {type: a, price: 1, cpu: many}", ["p.yaml, line 1: cpu: must be a quantity"]),
        ("p.yaml", "- {type: a, price: 1, colour: red}", ["p.yaml, line 1: unknown column 'colour'"]),
        ("p.yaml", "- {type: a, price: 1, capacityType: cheap}", ["p.yaml, line 1: capacityType: must be one of"]),
        ("p.yaml", "- {type: a, price: 1}\n- {type: a, price: 2}\n", ["p.yaml, line 2: the same node as in line 1"]),
        ("p.yaml", "type: a\n", ["p.yaml, line 1: must be a list of rows"]),
        ("p.yaml", "- a\n", ["p.yaml, line 1: must be a row"]),
        ("p.yaml", "- {type: a\n", ["p.yaml, line "]),
        ("p.yaml", "", ["p.yaml, line 1: must be a list"]),
        ("p.csv", "type,price\n", ["p.csv: there is no row"]),
        ("p.csv", "type,price\na,1\nb,x\n", ["p.csv, line 3: price"]),
        ("p.csv", "type,price\na,1,2\n", ["p.csv, line 2: 3 cells, but there are 2 columns"]),
        ("p.csv", "type,type\na,1\n", ["p.csv, line 1: two columns have the same name"]),
    ],
)
def test_faults_are_told_with_their_lines(name: str, text: str, faults: list[str]) -> None:
    with pytest.raises(BadPrices) as caught:
        read_prices(name, text)
    assert len(caught.value.problems) == len(faults)
    for told, expected in zip(caught.value.problems, faults, strict=True):
        assert told.startswith(expected)
