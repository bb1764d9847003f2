"""Makes `src/wharfinger/apiserver/data/protobuf.json.gz`: how Kubernetes' own kinds are laid out in protobuf.

Some clients, `kubectl create` among them, send their bodies in it. Field numbers and types come from the `generated.proto`
files of the Go modules that define them, in the versions that `tests/kubernetes/binaries/go.mod`
pins; which fields are pointers (so that a zero was written on purpose) or inlined comes from the tags of the Go types.
Run `python scripts/protobuf.py`, with Go on the PATH, after a change of these versions.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/wharfinger/apiserver/data/protobuf.json.gz"
MODULES = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator")

FIELD = re.compile(r"^\s+(optional|repeated|map<\w+, ([\w.]+)>)\s*([\w.]*) ?(\w+) = (\d+);")
GO_FIELD = re.compile(r"^\s+(?:\w+\s+)?([\w.*\[\]{}]+)\s+`json:\"([^\"]*)\".*protobuf:\"\w+,(\d+),")
SCALARS = {
    "string": "s",
    "bytes": "b",
    "bool": "t",
    "double": "d",
    "int32": "i",
    "int64": "i",
    "uint32": "u",
    "uint64": "u",
}


def module(name: str) -> Path:
    found = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", name],
        cwd=ROOT / "tests/kubernetes/binaries",
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(found.stdout.strip())


def go_tags(directory: Path) -> dict[str, dict[str, tuple[str, str]]]:
    """Struct to field number to Go type and JSON name (empty for inlined ones)."""
    structs: dict[str, dict[str, tuple[str, str]]] = {}
    for path in directory.glob("*.go"):
        current: dict[str, tuple[str, str]] | None = None
        for line in path.read_text().splitlines():
            if match := re.match(r"^type (\w+) struct {", line):
                current = structs.setdefault(match[1], {})
            elif line.startswith("}"):
                current = None
            elif current is not None and (match := GO_FIELD.match(line)):
                current[match[3]] = (match[1], match[2].partition(",")[0])
    return structs


def definition(name: str) -> str:
    """The name of a definition; packages of protobuf have underscores where modules have hyphens."""
    first, dot, rest = re.sub(r"^k8s\.io\.", "", name.lstrip(".")).partition(".")
    return f"io.k8s.{first.replace('_', '-')}{dot}{rest}" if name.lstrip(".").startswith("k8s.io.") else name


def messages(path: Path) -> dict[str, dict[str, list[str]]]:
    text = path.read_text()
    package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
    assert package is not None
    tags = go_tags(path.parent)
    found: dict[str, dict[str, list[str]]] = {}
    name = ""
    for line in text.splitlines():
        if match := re.match(r"^message (\w+) {", line):
            name = match[1]
            found[definition(f"{package[1]}.{name}")] = {}
        elif line.startswith("}"):
            name = ""
        elif name and (match := FIELD.match(line)):
            label, value_type, plain_type, json_name, number = match.groups()
            go_type, tag = tags.get(name, {}).get(number, ("", json_name))
            kind = value_type or plain_type
            if kind not in SCALARS and "." not in kind:
                kind = f"{package[1]}.{kind}"
            flags = "m" if label.startswith("map") else "r" if label == "repeated" else ""
            flags += "p" if go_type.startswith("*") else ""
            flags += "" if tag else "n"
            entry = [tag or json_name, SCALARS.get(kind) or definition(kind)]
            found[definition(f"{package[1]}.{name}")][number] = [*entry, flags] if flags else entry
    return found


def main() -> None:
    found: dict[str, dict[str, list[str]]] = {}
    for name in MODULES:
        for path in sorted(module(name).rglob("generated.proto")):
            if not re.search(r"v\d+(alpha|beta)\d+$", str(path.parent)):
                found |= messages(path)
    text = json.dumps(found, separators=(",", ":"), sort_keys=True).encode()
    TARGET.write_bytes(gzip.compress(text, 9, mtime=0))
    print(f"{TARGET.relative_to(ROOT)}: {len(found)} messages, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
