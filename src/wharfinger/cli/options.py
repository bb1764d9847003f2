"""Options that several commands share: which cluster, and how to print."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from wharfinger.client.http import HttpClient

F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(function: F) -> F:
    """Adds `--kubeconfig` and `--context`; the command gets `kubeconfig` and `context`, each perhaps None."""
    function = click.option("--context", metavar="NAME", help="The context of the kubeconfig to use.")(function)
    return click.option(
        "--kubeconfig",
        metavar="FILE",
        help="The kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config, then the cluster we run in.",
    )(function)


def output_option(*formats: str, default: str = "table") -> Callable[[F], F]:
    """Adds `-o/--output` with the given formats (table, wide, json, yaml, name unless told otherwise)."""
    choices = formats or ("table", "wide", "json", "yaml", "name")
    return click.option(
        "-o", "--output", type=click.Choice(choices), default=default, show_default=True, help="How to print."
    )


def open_client(kubeconfig: str | None, context: str | None, **options: Any) -> HttpClient:
    """A client for the cluster of these options. A kubeconfig that cannot be used ends the command with its message."""
    from wharfinger.client.connect import connect
    from wharfinger.client.kubeconfig import KubeconfigError

    try:
        return connect(kubeconfig, context, **options)
    except KubeconfigError as error:
        raise click.ClickException(str(error)) from error
