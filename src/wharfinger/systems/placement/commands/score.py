"""`wharf score`: score producers: the agents of member clusters, a Prometheus client, and scores by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wharfinger.cli.completing import names_of
from wharfinger.cli.exit_status import InputError
from wharfinger.cli.options import EXISTING_FILE, cluster_options, open_client
from wharfinger.systems.placement.commands.capacity import capacity


@click.group
def command() -> None:
    """Produce scores for Placements."""


command.add_command(capacity)


@command.command
@cluster_options
@click.option("--cluster-name", required=True, help="The name of this cluster on the hub.")
@click.option("--hub-kubeconfig", required=True, metavar="FILE", help="The kubeconfig of the hub.")
@click.option("--hub-context", metavar="NAME", help="The context in the hub's kubeconfig.")
@click.option("--resource-name", default="resource-usage", show_default=True, help="The AddOnPlacementScore's name.")
@click.option("--interval", default="30s", show_default=True, help="How often to report.")
@click.option("--valid-for", default="5m", show_default=True, help="How long scores stay valid without a report.")
@click.option("--cpu-scale", default=100.0, show_default=True, help="Free cores at which a cluster scores 100.")
@click.option("--memory-scale", default=1024.0, show_default=True, help="Free GiB at which a cluster scores 100.")
@click.option(
    "--claim", "claims", multiple=True, metavar="NAME=VALUE", help="A cluster claim to report. Can be repeated."
)
@click.option("--once", is_flag=True, help="Report once and exit.")
def agent(
    kubeconfig: str | None,
    context: str | None,
    cluster_name: str,
    hub_kubeconfig: str,
    hub_context: str | None,
    claims: tuple[str, ...],
    **options: Any,
) -> None:
    """Report a member cluster to its hub: status, lease, and CPU and memory scores.

    --kubeconfig selects the member, --hub-kubeconfig the hub.

    \b
    Examples:
      wharf score agent --cluster-name lisbon --kubeconfig lisbon.conf --hub-kubeconfig hub.conf
    """
    import asyncio

    for claim in claims:
        if not claim.partition("=")[0] or not claim.partition("=")[2]:
            raise click.BadParameter(f"{claim!r} is not NAME=VALUE", param_hint="--claim")
    interval, valid_for = _durations(options.pop("interval"), options.pop("valid_for"))
    member = open_client(kubeconfig, context, component="wharf-score-agent")
    hub = open_client(hub_kubeconfig, hub_context, component="wharf-score-agent")
    facts = dict(claim.split("=", 1) for claim in claims)
    _log()
    asyncio.run(_agent(cluster_name, member, hub, facts, interval, valid_for, **options))


async def _agent(
    cluster: str,
    member: Any,
    hub: Any,
    claims: dict[str, str],
    interval: float,
    valid_for: float,
    *,
    resource_name: str,
    cpu_scale: float,
    memory_scale: float,
    once: bool,
) -> None:
    from wharfinger.api.errors import ApiError
    from wharfinger.systems.placement.scores.agent import Agent, Scales

    made = Agent(
        cluster,
        member,
        hub,
        resource_name=resource_name,
        valid_for=valid_for,
        scales=Scales(cpu_scale, memory_scale),
        claims=claims,
    )
    try:
        if once:
            accepted = await made.report()
            if not accepted:
                raise click.ClickException(f"the hub has not accepted the cluster {cluster} yet")
        else:
            await until_signal(made.run(interval))
    except ApiError as error:
        raise click.ClickException(error.message) from error
    finally:
        await member.close()
        await hub.close()


@command.command
@cluster_options
@click.option(
    "-f", "--file", "path", required=True, type=EXISTING_FILE,
    help="The PrometheusScores document.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Measure and publish once, then exit.")
def prometheus(kubeconfig: str | None, context: str | None, path: Path, once: bool) -> None:
    """Publish scores from PromQL queries on the hub that --kubeconfig selects."""
    import asyncio

    import yaml

    from wharfinger.systems.placement.scores.prometheus import BadPrometheusScores, load

    try:
        settings = load(yaml.safe_load(path.read_text()), path.parent)
    except (BadPrometheusScores, yaml.YAMLError) as error:
        raise InputError(f"{path}: {error}") from error
    _log()
    hub = open_client(kubeconfig, context, component="wharf-score-prometheus")
    asyncio.run(_prometheus(hub, settings, once))


async def _prometheus(hub: Any, settings: Any, once: bool) -> None:
    from wharfinger.api.wording import counted
    from wharfinger.systems.placement.scores.prometheus import PrometheusSource
    from wharfinger.systems.placement.scores.publish import (
        FAILURES,
        ScorePublisher,
        of_known_clusters,
        publish_all,
        run_producer,
    )

    interval, valid_for = settings.seconds
    source = PrometheusSource(settings)
    publisher = ScorePublisher(hub, settings.resource_name, valid_for=valid_for)
    measure = of_known_clusters(publisher, source.measure)
    try:
        if once:
            written, failed = await publish_all(publisher, await measure())
            click.echo(f"published the scores of {counted(written, 'cluster')}")
            if failed:
                raise click.ClickException(f"could not publish the scores of {', '.join(failed)}")
            if source.failures:
                raise click.ClickException("; ".join(dict.fromkeys(source.failures.values())))
        else:
            await until_signal(run_producer(publisher, measure, interval))
    except FAILURES as error:
        raise click.ClickException(str(error)) from error
    finally:
        await source.close()
        await hub.close()


@command.command("set")
@cluster_options
@click.argument("cluster", shell_complete=names_of("managedclusters"))
@click.argument("resource")
@click.argument("scores", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--valid-for", help="How long the scores stay valid.  [default: for ever]")
def set_scores(
    kubeconfig: str | None,
    context: str | None,
    cluster: str,
    resource: str,
    scores: tuple[str, ...],
    valid_for: str | None,
) -> None:
    """Set scores of a cluster by hand, on the hub that --kubeconfig selects.

    RESOURCE is the name of the AddOnPlacementScore in the cluster's namespace; it is created if necessary. Other scores
    in it are kept; NAME- removes one. The validity is that of the whole object.

    \b
    Examples:
      wharf score set lisbon cost spot=80 onDemand=-20
      wharf score set lisbon cost spot- --valid-for 1h
    """
    import asyncio

    from wharfinger.api.errors import ApiError
    from wharfinger.api.times import BadTime, parse_duration
    from wharfinger.systems.placement.scores.publish import set_by_hand

    changes = dict(_score(text) for text in scores)
    try:
        seconds = None if valid_for is None else parse_duration(valid_for)
    except BadTime as error:
        raise click.BadParameter(str(error), param_hint="--valid-for") from error
    if seconds is not None and seconds <= 0:
        raise click.BadParameter("must be longer than 0", param_hint="--valid-for")

    async def write() -> dict[str, int]:
        hub = open_client(kubeconfig, context, component="wharf-score-set")
        try:
            return await set_by_hand(hub, cluster, resource, changes, seconds)
        finally:
            await hub.close()

    try:
        found = asyncio.run(write())
    except ApiError as error:
        raise click.ClickException(error.message) from error
    click.echo(
        f"{cluster}/{resource}: {', '.join(f'{name}={value}' for name, value in sorted(found.items())) or 'no scores'}"
    )


def _score(text: str) -> tuple[str, int | None]:
    from wharfinger.systems.placement.scores.normalise import HIGHEST, LOWEST

    name, equals, value = text.partition("=")
    if not equals and name.endswith("-") and len(name) > 1:
        return name[:-1], None
    try:
        number = int(value)
    except ValueError:
        number = HIGHEST + 1
    if not name or not LOWEST <= number <= HIGHEST:
        raise click.BadParameter(
            f"{text!r} is neither NAME=VALUE with an integer between {LOWEST} and {HIGHEST} nor NAME-",
            param_hint="NAME=VALUE",
        )
    return name, number


@command.command
@click.argument("cluster")
@click.option("--hub", "where", flag_value="hub", default="hub", help="What the hub needs.  [default]")
@click.option(
    "--member", "where", flag_value="member", help="What the member needs: the agents, and what they may read."
)
@click.option("--namespace", default="wharfinger-system", show_default=True, help="The namespace of the agents.")
@click.option("--image", help="The container image of the agents.  [default: that of this version]")
def manifests(cluster: str, where: str, namespace: str, image: str | None) -> None:
    """Print the manifests that a member cluster and its hub need for the agents of the cluster.

    Those for the hub accept the cluster and give its agents an account that may read and write only what belongs to the
    cluster. Those for the member run the agents; they expect a kubeconfig of that account in the Secret wharfinger-hub.

    \b
    Examples:
      wharf score manifests lisbon | kubectl apply --server-side -f -
      wharf score manifests lisbon --member | kubectl apply --server-side -f -
    """
    from wharfinger.api.kinds import registry
    from wharfinger.api.names import dns_label
    from wharfinger.cli.manifest_output import write
    from wharfinger.systems.placement.scores.access import IMAGE, hub_manifests, member_manifests

    if errors := dns_label(cluster):
        raise click.BadParameter("; ".join(errors), param_hint="CLUSTER")
    made = (
        hub_manifests(cluster)
        if where == "hub"
        else member_manifests(cluster, registry(), namespace=namespace, image=image or IMAGE)
    )
    write(made, "yaml")


async def until_signal(work: Any) -> None:
    import asyncio
    import signal

    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return


def _durations(interval: str, valid_for: str) -> tuple[float, float]:
    from wharfinger.api.times import BadTime, parse_duration

    try:
        found = parse_duration(interval), parse_duration(valid_for)
    except BadTime as error:
        raise click.BadParameter(str(error)) from error
    if not 0 < found[0] <= found[1] / 2:
        raise click.BadParameter("--interval must be at most half of --valid-for")
    return found


def _log() -> None:
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
