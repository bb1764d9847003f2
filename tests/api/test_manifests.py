"""Manifests from files: lenient where the design documents slip, strict with a place for everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from wharfinger.api.block_yaml import BlockReader
from wharfinger.api.kinds import registry
from wharfinger.api.manifests import BadManifests, load, load_all
from wharfinger.api.yaml_reader import MAX_DEPTH, BadYaml, DocumentReader, read, resolve
from wharfinger.api.yaml_scalars import NotBlock

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"


def names(*texts: str) -> list[str]:
    return [manifest.name for manifest in load([(f"f{i}.yaml", text) for i, text in enumerate(texts)])]


def test_many_documents_lists_and_json() -> None:
    listed = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "c"}}]})
    mixed = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: d}\n"
    assert names(f"# a comment\n---\n{POD % 'a'}---\n\n--- # empty\n---\n{POD % 'b'}", listed, mixed) == [
        "a",
        "b",
        "c",
        "d",
    ]


def test_items_of_a_typed_list_get_its_kind() -> None:
    text = json.dumps({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [{"metadata": {"name": "x"}}]})
    document = load([("f", text)])[0].document
    assert (document["apiVersion"], document["kind"]) == ("apps/v1", "Deployment")


def test_json_objects_after_each_other() -> None:
    one = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})
    assert names(f"{one}\n{one}") == ["a", "a"]


def test_objects_know_where_they_stand() -> None:
    text = f"{POD % 'a'}---\n{POD % 'b'}spec:\n  containers:\n  - name: c\n    image: i\n"
    source = load([("pods.yaml", text)])[1].source
    assert str(source) == "pods.yaml, document 2, line 4"
    assert source.line_of("spec.containers[0].image") == 11
    assert source.line_of("spec.containers[0].resources.limits") == 10


def test_every_fault_of_every_file_at_once() -> None:
    bad = f"{POD % 'a'}kind: Pod\n---\n: : [\n---\nkind: Pod\n---\njust text\n---\n{POD % 'ok'}"
    with pytest.raises(BadManifests) as caught:
        load(
            [("a.yaml", bad), ("b.yaml", b"\xff\xfe"), ("c.json", '{"apiVersion": "v1", "kind": "Pod", "kind": "Pod"}')]
        )
    texts = [str(fault) for fault in caught.value.faults]
    assert texts[0] == 'a.yaml, document 1, line 4: kind: key "kind" already set in map'
    assert texts[1].startswith("a.yaml, document 2, line 6: ")
    assert texts[2] == "a.yaml, document 3, line 7: apiVersion: Required value"
    assert texts[3] == "a.yaml, document 4, line 9: an object is wanted, not str"
    assert texts[4].startswith("b.yaml, document 1, line 1: not UTF-8 text")
    assert texts[5] == 'c.json, document 1, line 1: kind: key "kind" already set in map'
    assert len(texts) == 6


def test_unknown_kinds_are_faults_where_a_registry_is_given() -> None:
    loaded = load_all([("f.yaml", "apiVersion: v1\nkind: Pood\n")], registry())
    assert [str(fault) for fault in loaded.faults] == [
        'f.yaml, document 1, line 2: kind: no matches for kind "Pood" in version "v1"'
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apiVersion: v1\nKind: Pod", {"apiVersion": "v1", "kind": "Pod"}),
        ("piVersion: v1\nkind: Pod", {"apiVersion": "v1", "kind": "Pod"}),
        ("apiVersion: extensions/valpha1\nkind: SchedulingPolicy", {"apiVersion": "extensions/v1alpha1", "kind": "SchedulingPolicy"}),
        ("apiVersion: v1\nkind: ResourceQuota\nspec:\n  Hard:\n    gpu-gold: “4”", {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"gpu-gold": "4"}}}),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: “a: b”}", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a: b"}}),
    ],
)  # fmt: skip
def test_mistakes_of_the_design_documents_are_repaired_and_reported(text: str, expected: dict[str, Any]) -> None:
    loaded = load_all([("f", text)])
    assert [manifest.document for manifest in loaded.manifests] == [expected]
    assert loaded.repaired


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True), ("off", False), ("y", True), ("~", None), ("Null", None),
        ("2020-01-01", "2020-01-01"), ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"), ("12:30:45", "12:30:45"),
        ("010", 8), ("0o17", 15), ("0x1F", 31), ("0b11", 3), ("1_000", 1000), ("-5", -5),
        ("1e3", 1000), ("1.0", 1), ("1.5", 1.5), (".5", 0.5), ("1.2.3", "1.2.3"), ("100m", "100m"), ("08", 8), ("+", "+"),
    ],
)  # fmt: skip
def test_scalars_read_as_kubernetes_reads_them(text: str, value: Any) -> None:
    found = resolve(text)
    assert (found, type(found)) == (value, type(value))


def test_quoted_and_tagged_text_stays_text_and_keys_become_text() -> None:
    assert read("a: 'yes'\nb: !!str 1\n1: x\ntrue: y").value == {"a": "yes", "b": "1", "1": "x", "true": True}


def test_anchors_and_merges() -> None:
    value = read("base: &b {x: 1, z: [2]}\none: {<<: *b, x: 3}\ntwo: *b").value
    assert value == {"base": {"x": 1, "z": [2]}, "one": {"x": 3, "z": [2]}, "two": {"x": 1, "z": [2]}}
    assert value["two"] is not value["base"]


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)),
        "a: &a [*a]",
        "[" * 5000,
        "- " * 5000 + "x",
    ],
    ids=["billion laughs", "cycle", "deep flow", "deep block"],
)  # fmt: skip
def test_bombs_are_refused(text: str) -> None:
    with pytest.raises(BadYaml):
        read(text)


def _written_as_string(text: str) -> bool:
    """PyYAML leaves some texts unquoted that Kubernetes reads as booleans or numbers, such as `y` and `0E0`."""
    return yaml.safe_dump(text)[0] in "'\"" or resolve(text) == text


QUOTED = st.text(max_size=6).filter(_written_as_string)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | QUOTED,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(QUOTED, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(JSON)
def test_what_yaml_writes_is_read_back(value: Any) -> None:
    text = yaml.safe_dump(value)
    assert read(text).value == value


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(st.text(alphabet="ab:-[]{}&*!|>'\"\n #%@,?“”\t1~<", max_size=40))
def test_no_text_makes_the_loader_raise_anything_else(text: str) -> None:
    load_all([("f", text)], registry())


BLOCK = """\
items:
- kind: Node
  metadata:
    annotations:
      empty: ""
      note: "a\\tb"
      script: |
        one

          two
      quoted: 'it''s: #1'
    labels: {}
    name: n1
  status:
  spec:
    taints:
      - - --flag=1
        - -5
      - key: a:b
        4gpu: 0.5

    f:x: é
kind: List
last:
"""


def test_what_machines_write_is_read_line_by_line_to_the_same_value() -> None:
    value = read_block(BLOCK)
    assert value == fully(BLOCK)
    assert value["items"][0]["metadata"]["annotations"]["script"] == "one\n\n  two\n"
    assert value["items"][0]["spec"]["taints"] == [["--flag=1", -5], {"key": "a:b", "4gpu": 0.5}]
    assert value["last"] is None


@pytest.mark.parametrize(
    "text",
    ["a: 1\na: 2", "a: x\n\n  y", "a: 'x\n\n  y'", 'a: "x" "y"', "a: &b 1", "a: {b: 1,\n c: 2}", "a: {b: 1, b: 2}", "a: x: y",
     "yes: 1", "a: {yes: 1}", "a: [" * 30, "a: {b: c: d}", "a: 'x\n  y' z", "a: |\n   x\n  y\n", "a: |2\n   x\n", "a: |\n  x",
     "a:\n\t- x", "a: - x", "a: .nan", "a: “x”", "a: 1\n b: 2", "- a\nb: 1", "a: >\n  x", "a: 1\n--- ", "x", "", "# x"],
)  # fmt: skip
def test_what_is_out_of_the_ordinary_is_left_to_the_full_reader(text: str) -> None:
    with pytest.raises(NotBlock):
        read_block(text)


def test_what_people_write_is_read_line_by_line_to_the_same_value() -> None:
    text = """\
# the shop
a: {cpu: "1", memory: 1Gi, ports: [80, x:y], args: ['it''s', -v]}  # all of it
b:   # a comment

  - [1, {c: no}, []]
  - "caf\\u00e9\\n"
  - a plain text that
    goes on
c: 'a quoted text: it
  goes on'
d: |-
  one

   two

e: spaces after
"""
    value = read_block(text)
    assert value == fully(text)
    assert value["a"] == {"cpu": "1", "memory": "1Gi", "ports": [80, "x:y"], "args": ["it's", "-v"]}
    assert value["b"] == [[1, {"c": False}, []], "café\n", "a plain text that goes on"]
    assert value["c"] == "a quoted text: it goes on"
    assert value["d"] == "one\n\n two"


LINES = st.lists(
    st.tuples(
        st.sampled_from(["", "  ", "    ", "- ", "  - ", "- - "]),
        st.sampled_from(["a: ", "b: ", "a:", "b:", "c:", ""]),
        st.sampled_from(
            [
                "",
                "x",
                "1",
                "{}",
                "'q'",
                '"d\\n"',
                "|",
                "- x",
                "x: y",
                "x #y",
                "~",
                '"d""',
                "-",
                "'x",
                "y'",
                "# c",
                "|+",
                "{a: 1, b: [x, 'y']}",
                "[1,2]",
                "[a: b]",
                "{a, b}",
                "[x:y, -1, - ]",
                "{a:1}",
                "{a : b} #c",
                "{a: - b}",
                "z ",
            ]
        ),
    ).map("".join),
    max_size=6,
)


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(LINES)
def test_no_text_means_one_thing_line_by_line_and_another_to_the_full_reader(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        value = read_block(text)
    except NotBlock:
        return
    assert repr(value) == repr(fully(text))


VALUES = st.sampled_from(
    [
        "x",
        "true",
        "1",
        "it's",
        "a: b",
        "a #b",
        "- x",
        "a long text: folded by the writer",
        "two\nlines\n",
        " x",
        "x ",
        "",
        "é",
        "~",
        "a:b",
        "[x]",
        "{}",
        '"q"',
        "@x",
        "x:",
        "back\\slash",
        None,
        1,
        2.5,
        True,
    ]
)
FIELDS = st.dictionaries(st.sampled_from(["a", "b", "x/y.z"]), VALUES | st.lists(VALUES, max_size=2), max_size=3)


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(st.lists(FIELDS, min_size=1, max_size=2), st.data(), st.sampled_from([20, 80]), st.booleans())
def test_items_of_a_list_are_read_by_templates_to_the_same_values(
    kinds: list[dict[str, Any]], data: st.DataObject, width: int, flow: bool
) -> None:
    """Items of the same fields, with other values, after those from which the templates are made."""
    items = [dict(kind) for kind in kinds for _ in range(14)]
    items += [{key: data.draw(VALUES) if type(old) is str else old for key, old in items[-1].items()} for _ in range(4)]
    text = yaml.safe_dump({"items": items, "kind": "List"}, width=width, default_flow_style=None if flow else False)
    padded = text + f"note: {'x' * (1 << 16)}\n"  # long enough to be read item by item
    try:
        value = read_block(padded)
    except NotBlock:
        return
    assert repr(value) == repr(fully(padded))


def test_an_item_that_only_the_full_reader_knows_does_not_keep_others_from_being_read() -> None:
    usual = "".join(f"- name: n{number}\n  labels: {{}}\n" for number in range(5000))
    text = f"items:\n{usual}- name: &x last\n  copy: *x\nkind: List\n"
    value = read_block(text)
    assert value["items"][4999] == {"name": "n4999", "labels": {}}
    assert value["items"][5000] == {"name": "last", "copy": "last"}
    assert value["items"][1]["labels"] is not value["items"][2]["labels"]
    assert value["kind"] == "List"


@pytest.mark.parametrize(
    "rest", ["- name: 'x\n- y'\n", "- name: *n\n", "items: []\n", "- name: x\n  name: y\n", "- {\n", "-x\n"]
)
def test_a_list_with_a_fault_is_reported_as_by_the_full_reader(rest: str) -> None:
    text = "items:\n" + "- name: x\n" * 10_000 + rest
    told = []
    for reading in (lambda: DocumentReader().read(text), lambda: read(text, with_lines=True)):
        try:
            found = reading()
            told.append((repr(found.value), found.faults))
        except BadYaml as error:
            told.append((str(error), error.line))
    assert told[0] == told[1]


def read_block(text: str) -> Any:
    return BlockReader(lambda part, depth: fully(part), MAX_DEPTH).read(text)


def fully(text: str) -> Any:
    """The value by the full reader, which is the one that knows lines."""
    try:
        reading = read(text, with_lines=True)
    except BadYaml as error:
        raise NotBlock from error
    assert not reading.faults
    return reading.value
