"""`wharf crds`: the CustomResourceDefinitions of our kinds, for `kubectl apply -f -`."""

from __future__ import annotations

import click


@click.command
@click.argument("names", nargs=-1, metavar="[KIND]...")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(names: tuple[str, ...], output: str) -> None:
    """Print the CustomResourceDefinitions of our kinds.

    \b
    wharf crds | kubectl apply --server-side -f -
    wharf crds resourcepolicy reservations
    """
    import msgspec
    import yaml

    from wharfinger.api.kinds import registry
    from wharfinger.api.schemas import crd, crds

    known = registry()
    if names:
        found = [known.find(name) for name in names]
        for name, kind in zip(names, found):
            if kind is None or not kind.ours:
                ours = ", ".join(sorted(kind.plural for kind in known if kind.ours))
                raise click.BadParameter(f"no kind of ours is called {name!r}; there are: {ours}", param_hint="KIND")
        manifests = [crd(kind) for kind in found if kind is not None]
    else:
        manifests = crds(known)
    if output == "json":
        document = {"apiVersion": "v1", "kind": "List", "items": manifests}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    # The C dumper shares repeated nodes as anchors unless told otherwise; kubectl would take them, people would not.
    dumper = type("Plain", (yaml.CSafeDumper,), {"ignore_aliases": lambda self, data: True})
    for manifest in manifests:
        click.echo("---")
        click.echo(yaml.dump(manifest, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120), nl=False)
