"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.client.http import HttpClient

F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(function: F) -> F:
    """Adds `--kubeconfig` and `--context`; the command gets `kubeconfig` and `context`, each of which may be None."""
    function = click.option("--context", metavar="NAME", help="The kubeconfig context to use.")(function)
    return click.option(
        "--kubeconfig",
        metavar="FILE",
        help="The kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config, then the service account of the pod.",
    )(function)


def data_dir_option(help: str) -> Callable[[F], F]:
    """Adds `--data-dir`, a folder."""
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=".wharf",
        show_default=True,
        envvar="WHARF_DATA_DIR",
        help=help,
    )


def output_option(*formats: str, default: str = "table") -> Callable[[F], F]:
    """Adds `-o/--output` with the given formats (by default table, wide, json, yaml and name)."""
    choices = formats or ("table", "wide", "json", "yaml", "name")
    return click.option(
        "-o", "--output", type=click.Choice(choices), default=default, show_default=True, help="Output format."
    )


def strict_option(function: F) -> F:
    """Adds `--strict`."""
    return click.option(
        "--strict", is_flag=True, help="Refuse objects and fields that are not known here, and incomplete snapshots."
    )(function)


def config_option(function: F) -> F:
    """Adds `--config`, a WharfingerConfiguration; `read_configuration` reads it."""
    return click.option("--config", metavar="FILE", help="A WharfingerConfiguration.")(function)


def read_configuration(path: str | None) -> tuple[Configuration, dict[str, Any]]:
    """The configuration of a file, and the document itself; without a file, the defaults."""
    import yaml

    from wharfinger.api.configuration import BadConfiguration, load_configuration

    if path is None:
        return load_configuration({}), {}
    try:
        document = yaml.safe_load(Path(path).read_text()) or {}
        return load_configuration(document), document
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, BadConfiguration, AttributeError) as error:
        raise click.ClickException(f"{path}: {error}") from error


def open_client(kubeconfig: str | None, context: str | None, **options: Any) -> HttpClient:
    """A client for the cluster of these options. An unusable kubeconfig ends the command with a message."""
    from wharfinger.client.connect import connect
    from wharfinger.client.kubeconfig import KubeconfigError

    try:
        return connect(kubeconfig, context, **options)
    except KubeconfigError as error:
        raise click.ClickException(str(error)) from error
