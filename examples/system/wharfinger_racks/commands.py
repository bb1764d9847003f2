"""`wharf racks`: the racks of a cluster or of files."""

import click

from wharfinger.cli.options import cluster_options


@click.command("racks")
@click.option(
    "-f", "--filename", "files", metavar="PATH", multiple=True, help="Manifests to read instead of a cluster."
)
@cluster_options
def command(files, kubeconfig, context):
    """List the racks, whether they are closed, and how many nodes they have."""
    from wharfinger.cli.output import table
    from wharfinger.cli.reading import read_kinds
    from wharfinger_racks.kinds import RACKS, row

    (racks,) = read_kinds([(RACKS, dict)], files, kubeconfig, context)
    click.echo(table(("rack", "closed", "nodes"), [row(rack) for rack in racks]))
