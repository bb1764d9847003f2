"""`wharf crds`: the CustomResourceDefinitions of our kinds, for `kubectl apply -f -`."""

from __future__ import annotations

import click


@click.command
@click.argument("names", nargs=-1, metavar="[KIND]...")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(names: tuple[str, ...], output: str) -> None:
    """Print the CustomResourceDefinitions of our kinds.

    \b
    Examples:
      wharf crds | kubectl apply --server-side -f -
      wharf crds resourcepolicy reservations
    """
    from wharfinger.api.kinds import registry
    from wharfinger.api.schema.crds import crd, crds
    from wharfinger.cli.manifest_output import write

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
    write(manifests, output)
