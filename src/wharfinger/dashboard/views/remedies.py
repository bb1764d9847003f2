"""What would help a waiting pod, as the page shows it: the words, and the same change for the what-if screen."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.api.registry import Document, Registry


def helpful_change(remedy: Document, registry: Registry) -> Document:
    """The text of a verified remedy, and the what-if that tries it; None where only the pod itself would change."""
    return {
        "text": remedy["change"],
        "kind": remedy["kind"],
        "node": remedy.get("node", ""),
        "letsIn": remedy.get("letsIn", 1),
        "waiting": remedy.get("waiting", 1),
        "change": _what_if(remedy, registry),
    }


def _what_if(remedy: Document, registry: Registry) -> Document | None:
    made: dict[str, Any] = {}
    for kind in remedy["kind"].split("+"):
        match kind:
            case "label":
                made["yaml"] = _yaml(_node(remedy["node"], metadata={"labels": remedy["labels"]}))
            case "uncordon":
                made["yaml"] = _yaml(_node(remedy["node"], spec={"unschedulable": False}))
            case "node":
                made["nodes"] = [{"like": remedy["like"], "count": remedy["nodes"]}]
            case "deletion":
                made["deletions"] = [f"pod/{each}" for each in remedy["pods"]]
            case "object":
                document = _object(remedy["object"], registry)
                if document is None:
                    return None
                made["yaml"] = _yaml(document)
            case _:
                return None
    return made


def _node(name: str, *, metadata: Document | None = None, **parts: Any) -> Document:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **(metadata or {})}, **parts}


def _object(named: Document, registry: Registry) -> Document | None:
    kind = registry.find(named["kind"])
    if kind is None or "spec" not in named:
        return None
    metadata = {"name": named["name"], **({"namespace": named["namespace"]} if named.get("namespace") else {})}
    return {"apiVersion": kind.storage.api_version, "kind": kind.kind, "metadata": metadata, "spec": named["spec"]}


def _yaml(document: Document) -> str:
    return msgspec.yaml.encode(document).decode()
