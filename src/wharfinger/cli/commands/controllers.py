"""`wharf controllers`: the stock controllers and those of the systems, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wharfinger.cli.component import Running, Turn, read_configuration, run_component, running_options
from wharfinger.cli.options import FILE, cluster_options, open_client

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.client.http import HttpClient
    from wharfinger.controllers.certificates.authority import SigningAuthority


@click.command
@cluster_options
@click.option(
    "--controllers",
    "names",
    default="*",
    show_default=True,
    help="Which to run, separated by commas. `*` stands for all, and `-name` excludes one.",
)
@click.option(
    "--root-ca-file",
    type=FILE,
    help="Certificate authority of the API server (PEM), to be published in each namespace as kube-root-ca.crt.",
)
@click.option(
    "--cluster-signing-cert-file",
    type=FILE,
    help="Certificate authority (PEM) that signs CertificateSigningRequests; without it and its key, none are signed.",
)
@click.option(
    "--cluster-signing-key-file",
    type=FILE,
    help="The private key (PEM) of that certificate authority.",
)
@click.option("--list", "only_list", is_flag=True, help="Print the names of all controllers and exit.")
@running_options
def command(
    kubeconfig: str | None,
    context: str | None,
    names: str,
    root_ca_file: Path | None,
    cluster_signing_cert_file: Path | None,
    cluster_signing_key_file: Path | None,
    only_list: bool,
    config: Path | None,
    running: Running,
) -> None:
    """Run the controllers against an API server.

    On a cluster with a kube-controller-manager, choose only those that it does not run.

    \b
    Examples:
      wharf controllers --list
      wharf controllers --controllers '*,-cronjob' --leader-elect --metrics-port 9090
    """
    import asyncio
    import logging

    from wharfinger.controllers.registry import UnknownController, chosen, factories

    if only_list:
        click.echo("\n".join(factories()))
        return
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        wanted = chosen(names.split(","))
    except UnknownController as error:
        raise click.BadParameter(str(error), param_hint="--controllers") from error
    root_ca = _read("--root-ca-file", root_ca_file).decode()
    signing = _authority(cluster_signing_cert_file, cluster_signing_key_file)
    configuration = read_configuration(config)
    client = open_client(kubeconfig, context, component="wharfinger-controllers")
    asyncio.run(_run(client, wanted, root_ca, signing, configuration, running))


def _read(option: str, path: Path | None) -> bytes:
    try:
        return b"" if path is None else path.read_bytes()
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}", param_hint=option) from error


def _authority(certificate: Path | None, key: Path | None) -> SigningAuthority | None:
    from wharfinger.controllers.certificates.authority import BadAuthority, SigningAuthority

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--cluster-signing-cert-file and --cluster-signing-key-file are given together")
    pair = _read("--cluster-signing-cert-file", certificate), _read("--cluster-signing-key-file", key)
    try:
        return SigningAuthority.load(*pair)
    except BadAuthority as error:
        raise click.BadParameter(str(error), param_hint="--cluster-signing-cert-file") from error


async def _run(
    client: HttpClient,
    names: list[str],
    root_ca: str,
    signing: SigningAuthority | None,
    configuration: Configuration,
    running: Running,
) -> None:
    from prometheus_client import CollectorRegistry

    from wharfinger.api.kinds import registry
    from wharfinger.client.controller import run_controllers
    from wharfinger.client.events import EventRecorder
    from wharfinger.client.informer import InformerSet
    from wharfinger.client.interface import Client
    from wharfinger.client.metrics import ControllerGauges, ControllerMetrics
    from wharfinger.client.timers import SystemClock
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.controllers.registry import make_controllers

    clock, metrics = SystemClock(), CollectorRegistry()
    observer, gauges = ControllerMetrics(metrics), ControllerGauges(metrics)

    async def control(writer: Client, informers: InformerSet, turn: Turn) -> None:
        recorder = EventRecorder(writer, "wharfinger-controllers", clock)
        recorder.start()
        made = ControllerContext(
            writer,
            informers,
            recorder,
            registry(),
            clock,
            configuration,
            observer=observer,
            gauges=gauges,
            root_ca=root_ca,
            signing=signing,
        )
        try:
            await run_controllers(make_controllers(made, names), informers, turn)
        finally:
            await recorder.stop()

    await run_component(client, "wharfinger-controllers", control, clock=clock, metrics=metrics, running=running)
