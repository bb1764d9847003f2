"""Snapshots are read object by object: their lines are known, equal strings are kept once, and damage is reported."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
import zstandard

from wharfinger.api.kinds import registry
from wharfinger.api.shared_strings import SharedStrings
from wharfinger.simulate.inputs import BadInput, Inputs, files_of, read_inputs
from wharfinger.simulate.snapshots import SnapshotHeader, SnapshotWriter

NAMES = [".json", ".json.gz", ".json.zst"]


def node(name: str, **more: object) -> dict[str, object]:
    metadata = {"name": name, "uid": f"u-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": {}, **more}


def written(path: Path, *documents: dict[str, object]) -> Path:
    writer = SnapshotWriter(path)
    for document in documents:
        writer.write(document)
    writer.finish(SnapshotHeader("2026-02-01T00:00:00Z"))
    return path


def reading(path: Path, *, strict: bool = False) -> Inputs:
    return read_inputs(files_of([str(path)], io.BytesIO()), registry(), strict=strict)


@pytest.mark.parametrize("suffix", NAMES)
def test_every_object_knows_its_line(tmp_path: Path, suffix: str) -> None:
    inputs = reading(written(tmp_path / f"s{suffix}", node("n1"), node("n2")))
    assert [(each.name, each.source.line, each.source.prefix) for each in inputs.manifests] == [
        ("n1", 2, "items[0]"),
        ("n2", 3, "items[1]"),
    ]
    assert inputs.start() > 1769900000  # when it was taken


@pytest.mark.parametrize("suffix", NAMES)
def test_a_fault_names_the_line_of_its_object(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"s{suffix}", node("n1"), node("n2", nonsense=1))
    with pytest.raises(BadInput, match=r"document 1, line 3: nonsense: unknown field"):
        reading(path, strict=True)


@pytest.mark.parametrize("suffix", NAMES)
def test_a_file_that_is_cut_off_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"s{suffix}", *(node(f"n{i}") for i in range(2000)))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(BadInput):
        reading(path)


def test_lines_that_end_too_early_are_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "s.json", node("n1"), node("n2"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    with pytest.raises(BadInput, match="ends in the middle of the snapshot"):
        reading(path)


def test_a_snapshot_that_somebody_formatted_is_read_as_a_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "s.json", node("n1"))
    head, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(head + b"\n" + rest.replace(b'{"apiVersion"', b'{\n"apiVersion"'))
    assert [each.name for each in reading(path).manifests] == ["n1"]


def test_several_compressed_frames_are_one_file(tmp_path: Path) -> None:
    data = written(tmp_path / "s.json", node("n1"), node("n2")).read_bytes()
    half = len(data) // 2
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:]))
    frame = zstandard.ZstdCompressor().compress
    (tmp_path / "t.json.zst").write_bytes(frame(data[:half]) + frame(data[half:]))
    for name in ("t.json.gz", "t.json.zst"):
        assert [each.name for each in reading(tmp_path / name).manifests] == ["n1", "n2"]


def test_equal_strings_are_kept_once() -> None:
    strings, documents = SharedStrings(), [{"a": ["".join(["x", "y"])], "b": {"c": "".join(["x", "y"])}} for _ in "12"]
    for document in documents:
        strings.share(document)
    assert documents[0] == {"a": ["xy"], "b": {"c": "xy"}}
    assert documents[0]["a"][0] is documents[1]["b"]["c"]  # type: ignore[index,call-overload]
