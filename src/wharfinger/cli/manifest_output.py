"""Prints manifests as a stream for kubectl."""

from __future__ import annotations

from collections.abc import Sequence

import click

from wharfinger.api.registry import Document


def write(manifests: Sequence[Document], output: str) -> None:
    """As YAML documents, or as one JSON List."""
    import msgspec
    import yaml

    if output == "json":
        document = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    # Without this the dumper writes repeated values as anchors, which are hard to read.
    dumper = type("Plain", (yaml.CSafeDumper,), {"ignore_aliases": lambda self, data: True})
    for manifest in manifests:
        click.echo("---")
        click.echo(yaml.dump(manifest, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120), nl=False)
