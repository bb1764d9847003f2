"""`wharf score capacity`: how many pods of a workload fit on a cluster, told to a person or to the hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import cluster_options, open_client, output_option

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.api.node_groups import NodeGroup
    from wharfinger.api.registry import Registry
    from wharfinger.client.interface import Client
    from wharfinger.client.timers import Clock
    from wharfinger.systems.placement.rules.capacity import CapacityAnswer, CapacityQuestion


@click.command("capacity")
@cluster_options
@click.option("--template", metavar="FILE", help="A Pod, PodTemplate or workload: print how many of its pods fit.")
@click.option("--replicas", type=click.IntRange(1, 10_000), help="How many pods.  [default: those of the template]")
@click.option("-n", "--namespace", default="default", show_default=True, help="The namespace if the template has none.")
@click.option(
    "-f",
    "--filename",
    "paths",
    multiple=True,
    metavar="PATH",
    help="With --template: read the cluster's state from files.",
)
@click.option("--cluster-name", help="The name of this cluster on the hub: answer the questions of the hub.")
@click.option("--hub-kubeconfig", metavar="FILE", help="The kubeconfig of the hub.")
@click.option("--hub-context", metavar="NAME", help="The context in the hub's kubeconfig.")
@click.option(
    "--node-group",
    "groups",
    multiple=True,
    metavar="PATH",
    help="A file or folder with node groups that can be scaled up. Can be repeated.",
)
@click.option("--interval", default="10s", show_default=True, help="The shortest time between two rounds of answers.")
@click.option("--settle", default="30s", show_default=True, help="How long a number must have risen before it is told.")
@click.option("--valid-for", default="5m", show_default=True, help="How long answers stay valid without a renewal.")
@click.option("--once", is_flag=True, help="Answer the present questions of the hub and exit.")
@output_option("table", "json", "yaml")
@click.pass_context
def capacity(
    ctx: click.Context,
    kubeconfig: str | None,
    context: str | None,
    template: str | None,
    replicas: int | None,
    namespace: str,
    paths: tuple[str, ...],
    cluster_name: str | None,
    hub_kubeconfig: str | None,
    hub_context: str | None,
    groups: tuple[str, ...],
    interval: str,
    settle: str,
    valid_for: str,
    once: bool,
    output: str,
) -> None:
    """Count how many pods of a workload fit on a cluster, now and after scale-up of its node groups.

    With --template, the numbers are printed; the exit code is 1 if not all pods fit now. With --cluster-name and
    --hub-kubeconfig, this is the capacity agent of a member: it answers what Placements on the hub ask with the
    annotation wharfinger.dev/capacity.

    \b
    Examples:
      wharf score capacity --template trainer.yaml --replicas 12 --node-group gpu-pool.yaml
      wharf score capacity --cluster-name lisbon --kubeconfig lisbon.conf --hub-kubeconfig hub.conf
    """
    found = [group for path in groups for group in _groups(path)]
    if template is not None:
        if cluster_name or hub_kubeconfig:
            raise click.UsageError(
                "--template prints the numbers; it takes neither --cluster-name nor --hub-kubeconfig"
            )
        answer = _ask(_question(template, replicas, namespace), found, paths, kubeconfig, context)
        _print(answer, output)
        ctx.exit(0 if answer.verdict == "FitsNow" else 1)
    if not cluster_name or not hub_kubeconfig:
        raise click.UsageError("give --template, or --cluster-name and --hub-kubeconfig")
    if paths or replicas is not None:
        raise click.UsageError("--filename and --replicas need --template")
    _serve(
        cluster_name, (kubeconfig, context), (hub_kubeconfig, hub_context), found, (interval, settle, valid_for), once
    )


def _groups(path: str) -> list[NodeGroup]:
    import yaml

    from wharfinger.api.node_groups import BadNodeGroup, read_group

    found = []
    files = sorted(each for each in Path(path).iterdir() if each.is_file()) if Path(path).is_dir() else [Path(path)]
    for file in files:
        try:
            documents = [each for each in yaml.safe_load_all(file.read_text()) if each is not None]
            found += [read_group(each) for each in documents]
        except OSError as error:
            raise click.BadParameter(f"{file}: {error.strerror}", param_hint="--node-group") from error
        except (yaml.YAMLError, BadNodeGroup) as error:
            raise click.BadParameter(f"{file}: {error}", param_hint="--node-group") from error
    return found


def _question(path: str, replicas: int | None, namespace: str) -> CapacityQuestion:
    import yaml

    from wharfinger.systems.placement.rules.capacity import CapacityQuestion

    try:
        documents = [each for each in yaml.safe_load_all(Path(path).read_text()) if each is not None]
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--template") from error
    except yaml.YAMLError as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--template") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise click.BadParameter(f"{path}: expected one object", param_hint="--template")
    document = documents[0]
    spec = document.get("spec") or {}
    if document.get("kind") == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    found = (
        document
        if document.get("kind") == "Pod"
        else document.get("template")
        if document.get("kind") == "PodTemplate"
        else spec.get("template")
    )
    if not isinstance(found, dict):
        raise click.BadParameter(f"{path}: a {document.get('kind')} has no pod template", param_hint="--template")
    wanted = replicas or spec.get("replicas") or spec.get("parallelism") or 1
    where = (document.get("metadata") or {}).get("namespace") or namespace
    return CapacityQuestion(namespace=where, replicas=int(wanted), template=found)


def _ask(
    question: CapacityQuestion,
    groups: list[NodeGroup],
    paths: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
) -> CapacityAnswer:
    from wharfinger.cli.asking import ask
    from wharfinger.systems.placement.rules.fitting import answer_question, example_pod

    async def count(
        client: Client, clock: Clock, configuration: Configuration, registry: Registry
    ) -> CapacityAnswer | ValueError:
        from wharfinger.client.informer import InformerSet
        from wharfinger.systems.placement.scores.capacity import MemberState

        informers = InformerSet(client)
        state = MemberState(informers, registry, configuration)
        informers.start()
        try:
            await informers.wait_synced()
            pod = example_pod(question, registry)
            return answer_question(state.engine, question, pod, groups, state.group_sizes())
        except ValueError as error:
            return error
        finally:
            await informers.stop()

    found = ask(count, paths, None, kubeconfig, context)
    if isinstance(found, ValueError):
        raise click.BadParameter(str(found), param_hint="--template")
    return found


def _print(answer: CapacityAnswer, output: str) -> None:
    from wharfinger.cli.output import emit

    if output == "table":
        click.echo(answer.text)
        return
    document: dict[str, Any] = {
        "replicas": answer.replicas,
        "now": answer.now,
        "afterScaleUp": answer.after_scale_up,
        "never": answer.replicas - answer.after_scale_up,
        "verdict": answer.verdict,
        "reason": answer.reason,
        "reasonAfterScaleUp": answer.reason_after_scale_up,
    }
    emit(document, output, kind="CapacityAnswer")


def _serve(
    cluster: str,
    member: tuple[str | None, str | None],
    hub: tuple[str | None, str | None],
    groups: list[NodeGroup],
    times: tuple[str, str, str],
    once: bool,
) -> None:
    import asyncio
    import logging

    from wharfinger.api.errors import ApiError
    from wharfinger.api.kinds import registry
    from wharfinger.api.times import BadTime, parse_duration
    from wharfinger.api.wording import counted
    from wharfinger.systems.placement.commands.score import until_signal
    from wharfinger.systems.placement.scores.capacity import CapacityAgent, CapacityTiming

    try:
        timing = CapacityTiming(*(parse_duration(text) for text in times))
    except BadTime as error:
        raise click.BadParameter(str(error)) from error
    if not 0 < timing.interval <= timing.valid_for / 4 or timing.settle < 0:
        raise click.BadParameter("--interval must be at most a quarter of --valid-for")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    async def answer() -> None:
        of_member = open_client(*member, component="wharf-score-capacity")
        of_hub = open_client(*hub, component="wharf-score-capacity")
        agent = CapacityAgent(cluster, of_member, of_hub, registry(), groups, timing)
        try:
            if once:
                names = await agent.once()
                click.echo(f"answered {counted(len(names), 'question')}")
            else:
                await until_signal(agent.run())
        finally:
            await of_member.close()
            await of_hub.close()

    try:
        asyncio.run(answer())
    except ApiError as error:
        raise click.ClickException(error.message) from error
    except ValueError as error:
        raise click.ClickException(str(error)) from error
