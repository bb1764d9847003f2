"""Writes a history as a Scenario file, which `wharf test` replays."""

from __future__ import annotations

from typing import Any

import yaml

from wharfinger.api.configuration import API_VERSION
from wharfinger.api.registry import Document
from wharfinger.fuzz.playing import PlayedHistory
from wharfinger.scenario.document import KIND


def scenario_document(played: PlayedHistory) -> Document:
    violation = played.violations[0]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": f"{violation.invariant}-{played.seed}"},
        "description": violation.message,
        "invariants": list(played.names),
        "steps": [step.written() for step in played.steps],
    }


def scenario_text(played: PlayedHistory) -> str:
    """The configuration, if it says anything, and the Scenario."""
    documents = [scenario_document(played)]
    if set(played.configuration) - {"apiVersion", "kind"}:
        documents.insert(0, played.configuration)
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, default_flow_style=None)


class _Dumper(yaml.SafeDumper):
    """Without anchors: a step is complete by itself."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_BOOLEANS = frozenset(
    ["y", "n", "yes", "no", "on", "off", "true", "false"]
)  # to readers of YAML 1.1, of which PyYAML is not quite one


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if text.lower() in _BOOLEANS else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
