"""Field sets: the fields that a manager owns, which server-side apply keeps in `metadata.managedFields`.

A field set is a set of paths. A path is a tuple of `f:name` (a field), `k:{…}` (a list item by its keys) and `v:…` (an
item of a set), in the notation of `fieldsV1`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.schema.tree import Schema

Path = tuple[str, ...]
FieldSet = frozenset[Path]

# Metadata that identifies the object or is set by the server has no owner.
_UNOWNED = frozenset(
    (
        "name",
        "namespace",
        "generateName",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
    )
)
MISSING: Any = object()


def is_granular(schema: Schema, value: Any) -> bool:
    """Whether members of the value have owners of their own; otherwise it is owned as a whole."""
    if isinstance(value, dict):
        return not schema.atomic_map and schema.type in ("object", "map", "any")
    return isinstance(value, list) and schema.type == "list" and schema.list_type in ("map", "set")


def item_key(schema: Schema, item: Any) -> str:
    """The path element of an item of a granular list."""
    if schema.list_type == "set" or not isinstance(item, dict):
        return "v:" + msgspec.json.encode(item).decode()
    keys = {key: item[key] if key in item else _key_default(schema.item, key) for key in sorted(schema.map_keys)}
    return "k:" + msgspec.json.encode({key: value for key, value in keys.items() if value is not None}).decode()


def _key_default(schema: Schema | None, key: str) -> Any:
    """The default of a key that an item omits: Go's zero value if the key is required."""
    if key == "protocol":
        return "TCP"
    if schema is None or not schema.name:
        return None  # a custom resource has no Go type
    if key not in schema.required and (schema.name, key) != _REFERENCE:
        return None
    return "" if schema.fields[key].type == "string" else 0


_REFERENCE = ("io.k8s.api.core.v1.LocalObjectReference", "name")


def fields_of(schema: Schema, document: Document, subresource: str, *, status: bool) -> FieldSet:
    """All fields that a document sets in the part that this subresource may write."""
    found: set[Path] = set()
    for name, value in document.items():
        if name in ("apiVersion", "kind") or (
            status and (name == "status") != (subresource == "status") and name != "metadata"
        ):
            continue
        part = schema.child(name)
        if name == "metadata" and isinstance(value, dict):
            for field, inner in value.items():
                if field not in _UNOWNED:
                    _collect(part.child(field), inner, ("f:metadata", f"f:{field}"), found)
        else:
            _collect(part, value, (f"f:{name}",), found)
    return frozenset(found)


def _collect(schema: Schema, value: Any, path: Path, found: set[Path], *, whole: bool = False) -> None:
    """Collects the members below a path; with `whole`, also maps and lists that have members."""
    if not value or not is_granular(schema, value):
        found.add(path)
    elif isinstance(value, dict):
        if whole and schema.type == "map":
            found.add(path)
        for name, inner in value.items():
            _collect(schema.child(name), inner, (*path, f"f:{name}"), found, whole=whole)
    else:
        if whole and path[-1] not in _ALWAYS_THERE:
            found.add(path)
        item_schema = schema.item_schema
        for item in value:
            here = (*path, item_key(schema, item))
            found.add(here)
            if isinstance(item, dict):
                for name, inner in item.items():
                    _collect(item_schema.child(name), inner, (*here, f"f:{name}"), found, whole=whole)


_ALWAYS_THERE = ("f:containers",)  # lists that Go writes even if empty have no owner themselves


def tree_of(schema: Schema, document: Document) -> Document:
    """The `fieldsV1` form of all fields of a new document, built directly because objects are created often. Parts of it
    are JSON already, because they are rarely read before they are written."""
    tree = {
        f"f:{name}": (_known_tree if name == "spec" else _tree)(schema.child(name), value, name)
        for name, value in document.items()
        if name not in ("apiVersion", "kind", "metadata")
    }
    meta = schema.child("metadata")
    owned = {
        f"f:{name}": _tree(meta.child(name), value, name)
        for name, value in document["metadata"].items()
        if name not in _UNOWNED
    }
    return {"f:metadata": owned, **tree} if owned else tree


_trees: dict[tuple[str, bytes], msgspec.Raw] = {}
_MOST_TREES, _LONGEST = 512, 32 * 1024
_encode = msgspec.json.Encoder().encode


def _known_tree(schema: Schema, value: Any, name: str) -> Document | msgspec.Raw:
    """The tree of a spec, cached because the objects of a workload have equal ones."""
    if not schema.name:
        return _tree(schema, value, name)
    key = (schema.name, _encode(value))
    known = _trees.get(key)
    if known is None:
        known = msgspec.Raw(_encode(_tree(schema, value, name)))
        if len(key[1]) < _LONGEST:
            if len(_trees) >= _MOST_TREES:
                _trees.clear()
            _trees[key] = known
    return known


def _tree(schema: Schema, value: Any, name: str) -> Document:
    if not value or not is_granular(schema, value):
        return {}
    if isinstance(value, dict):
        return _members(schema, value, {".": {}} if schema.type == "map" else {})
    node: Document = {} if f"f:{name}" in _ALWAYS_THERE else {".": {}}
    item_schema = schema.item_schema
    for item in value:
        node[item_key(schema, item)] = _members(item_schema, item, {".": {}}) if isinstance(item, dict) else {}
    return node


def _members(schema: Schema, value: Document, node: Document) -> Document:
    """The node with the members of a map."""
    for name, below in value.items():
        # Most members are scalars, or were defaulted to an empty map.
        node[f"f:{name}"] = _tree(schema.child(name), below, name) if below and type(below) in _NESTED else {}
    return node


_NESTED = (dict, list)


def compare(schema: Schema, old: Document, new: Document) -> tuple[FieldSet, FieldSet]:
    """Members that were added or changed, and members that were removed."""
    found = _Difference()
    for name in new.keys() | old.keys():
        if name in ("apiVersion", "kind"):
            continue
        part, before, after = schema.child(name), old.get(name, MISSING), new.get(name, MISSING)
        if name != "metadata":
            found.walk(part, before, after, (f"f:{name}",))
            continue
        for field in before.keys() | after.keys():
            if field not in _UNOWNED:
                path = ("f:metadata", f"f:{field}")
                found.walk(part.child(field), before.get(field, MISSING), after.get(field, MISSING), path)
    return frozenset(found.changed), frozenset(found.removed)


class _Difference:
    def __init__(self) -> None:
        self.changed: set[Path] = set()
        self.removed: set[Path] = set()

    def walk(self, schema: Schema, old: Any, new: Any, path: Path) -> None:
        if old is MISSING:
            if new is not MISSING:
                _collect(schema, new, path, self.changed, whole=True)
        elif new is MISSING:
            _collect(schema, old, path, self.removed, whole=True)
        elif old == new:
            return
        elif not (old and new and type(old) is type(new) and is_granular(schema, new)):
            before: set[Path] = set()
            after: set[Path] = set()
            _collect(schema, old, path, before, whole=True)
            _collect(schema, new, path, after, whole=True)
            self.changed |= after
            self.removed |= before - after
        elif isinstance(new, dict):
            for name in old.keys() | new.keys():
                self.walk(schema.child(name), old.get(name, MISSING), new.get(name, MISSING), (*path, f"f:{name}"))
        else:
            self._lists(schema, old, new, path)

    def _lists(self, schema: Schema, old: list[Any], new: list[Any], path: Path) -> None:
        before = {item_key(schema, item): item for item in old}
        after = {item_key(schema, item): item for item in new}
        for keys, gone in ((after.keys() - before.keys(), False), (before.keys() - after.keys(), True)):
            target, items = (self.removed, before) if gone else (self.changed, after)
            for key in keys:
                _collect(schema, [items[key]], path, target)
        item_schema = schema.item_schema
        for key in after.keys() & before.keys():
            if isinstance(after[key], dict) and isinstance(before[key], dict) and after[key] != before[key]:
                for name in after[key].keys() | before[key].keys():
                    self.walk(
                        item_schema.child(name),
                        before[key].get(name, MISSING),
                        after[key].get(name, MISSING),
                        (*path, key, f"f:{name}"),
                    )


def encode(fields: FieldSet) -> Document:
    """The `fieldsV1` form: a tree in which empty leaves and nodes with a dot are members."""
    tree: Document = {}
    for path in sorted(fields):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
    for path in fields:
        node = tree
        for step in path:
            node = node[step]
        if node:
            node["."] = {}
    return tree


def decode(tree: Any) -> FieldSet:
    found: set[Path] = set()

    def walk(node: Any, path: Path) -> None:
        if not isinstance(node, dict) or not node or "." in node:
            found.add(path)
        if isinstance(node, dict):
            for step, below in node.items():
                if step != ".":
                    walk(below, (*path, step))

    if isinstance(tree, dict):
        for step, below in tree.items():
            walk(below, (step,))
    return frozenset(found)


class Finder:
    """Finds values of a document, which must not change, by path. Each list is searched once."""

    def __init__(self, schema: Schema, document: Document) -> None:
        self._schema = schema
        self._document = document
        self._lists: dict[int, dict[str, Any]] = {}  # items by step

    def find(self, path: Path) -> Any:
        """The value at a path; `MISSING` if there is none."""
        schema: Schema = self._schema
        value: Any = self._document
        for step in path:
            if step.startswith("f:"):
                if not isinstance(value, dict) or step[2:] not in value:
                    return MISSING
                value, schema = value[step[2:]], schema.child(step[2:])
            else:
                if not isinstance(value, list):
                    return MISSING
                value = self._items(schema, value).get(step, MISSING)
                if value is MISSING:
                    return MISSING
                schema = schema.item_schema
        return value

    def _items(self, schema: Schema, values: list[Any]) -> dict[str, Any]:
        known = self._lists.get(id(values))
        if known is None:
            known = self._lists[id(values)] = {item_key(schema, item): item for item in reversed(values)}
        return known


@lru_cache(maxsize=4096)
def describe(path: Path) -> str:
    """A path as in messages: `.spec.containers[name="c"].image`."""
    text = ""
    for step in path:
        kind, rest = step[:2], step[2:]
        if kind == "f:":
            text += f".{rest}"
        elif kind == "k:":
            keys = msgspec.json.decode(rest)
            text += "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items()) + "]"
        else:
            text += f"[={rest}]"
    return text
