"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wharfinger.cli.completing import contexts
from wharfinger.cli.exit_status import InputError

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.apiserver.audit.policy import AuditPolicy
    from wharfinger.capacity.prices import PriceTable
    from wharfinger.client.http import HttpClient

F = TypeVar("F", bound=Callable[..., Any])

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def cluster_options(function: F) -> F:
    """Adds `--kubeconfig` and `--context`; the command gets `kubeconfig` and `context`, each of which may be None."""
    function = click.option(
        "--context", metavar="NAME", shell_complete=contexts, help="The kubeconfig context to use."
    )(function)
    return click.option(
        "--kubeconfig",
        metavar="FILE",
        type=click.Path(),
        help="The kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config, then the service account of the pod.",
    )(function)


def data_dir_option(help: str) -> Callable[[F], F]:
    """Adds `--data-dir`, a folder."""
    return click.option(
        "--data-dir",
        type=FOLDER,
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


def paths_option(*names: str, help: str, metavar: str = "PATH", required: bool = False) -> Callable[[F], F]:
    """Adds an option for a path that can be given several times."""
    return click.option(*names, multiple=True, required=required, type=click.Path(), metavar=metavar, help=help)


def state_options(function: F) -> F:
    """Adds where the state of a cluster comes from: `--cluster`, of which the command gets `snapshots`, the paths that
    were given, or the cluster of `cluster_options`."""
    described = "A file or folder with the cluster's state, instead of a live cluster."
    return paths_option("--cluster", "snapshots", metavar="SNAPSHOT", help=described)(cluster_options(function))


def scheduler_names_option(help: str, default: str = "wharfinger") -> Callable[[F], F]:
    """Adds `--scheduler-names`."""
    return click.option("--scheduler-names", default=default, show_default=True, help=help)


def solver_options(aim: str) -> Callable[[F], F]:
    """Adds `--solver` and `--time-limit` for a search that CP-SAT can improve; `aim` is what CP-SAT looks for."""

    def add(function: F) -> F:
        function = click.option(
            "--time-limit", default="30s", show_default=True, help=f"How long CP-SAT may look for {aim}."
        )(function)
        return click.option(
            "--solver",
            type=click.Choice(["search", "cp-sat"]),
            default="search",
            show_default=True,
            help="`cp-sat` also needs `pip install 'wharfinger[solver]'`.",
        )(function)

    return add


def strict_option(function: F) -> F:
    """Adds `--strict`."""
    return click.option(
        "--strict", is_flag=True, help="Refuse objects and fields that are not known here, and incomplete snapshots."
    )(function)


def config_option(function: F) -> F:
    """Adds `--config`, a WharfingerConfiguration; `read_configuration` reads it."""
    return click.option("--config", metavar="FILE", help="A WharfingerConfiguration.")(function)


def server_options(function: F) -> F:
    """Adds the limits and the audit log of the API server; the command gets them as keywords for `server_arguments` or
    `server_settings`."""
    for option in reversed(_SERVER_OPTIONS):
        function = option(function)
    return function


_LIMITS = (  # option, default, help
    (
        "--max-requests-inflight",
        400,
        "Requests in progress, together with the next option; one user may have a quarter of them.",
    ),
    ("--max-mutating-requests-inflight", 200, "Added to the option before, as by kube-apiserver."),
    (
        "--max-watches",
        20_000,
        "Watches and other long requests of all users; one user may have as many as are still free.",
    ),
    (
        "--max-connections-per-user",
        1000,
        "Connections of one user, besides those of its watches; more close the oldest idle ones.",
    ),
)
_SERVER_OPTIONS = (
    *(
        click.option(name, type=click.IntRange(1), default=default, show_default=True, help=help)
        for name, default, help in _LIMITS
    ),
    click.option(
        "--audit-policy-file", type=EXISTING_FILE, help="An audit.k8s.io/v1 Policy: what is written to the audit log."
    ),
    click.option("--audit-log-path", metavar="FILE", help="The audit log; - is the standard output."),
    click.option("--audit-log-maxsize", type=click.IntRange(0), help="Megabytes after which the audit log is rotated."),
    click.option("--audit-log-maxbackup", type=click.IntRange(0), help="Rotated audit logs to keep; 0 keeps all."),
    click.option("--audit-log-maxage", type=click.IntRange(0), help="Days to keep rotated audit logs; 0 keeps all."),
)


def server_arguments(options: dict[str, Any]) -> list[str]:
    """The options of `server_options` as arguments of `wharf apiserver`."""
    given = ((f"--{name.replace('_', '-')}", value) for name, value in options.items() if value is not None)
    return [part for name, value in given for part in (name, str(value))]


def server_settings(options: dict[str, Any]) -> dict[str, Any]:
    """The options of `server_options` as fields of ApiServerSettings. An invalid policy ends the command."""
    from wharfinger.apiserver.audit.log import AuditLogSettings
    from wharfinger.apiserver.fairness import FairnessLimits

    policy = read_audit_policy(options["audit_policy_file"])
    path: str | None = options["audit_log_path"]
    if path is None and policy is not None:
        raise click.UsageError("--audit-policy-file needs --audit-log-path")
    log = None
    if path is not None:
        log = AuditLogSettings(
            path if path == "-" else str(Path(path).resolve()),
            max_size=options["audit_log_maxsize"] or 0,
            max_backups=options["audit_log_maxbackup"] or 0,
            max_age=options["audit_log_maxage"] or 0,
        )
    seats = options["max_requests_inflight"] + options["max_mutating_requests_inflight"]
    return {
        "limits": FairnessLimits(seats, options["max_watches"]),
        "connections": options["max_connections_per_user"],
        "audit_log": log,
        "audit_policy": policy,
    }


def read_prices_option(path: str | None) -> PriceTable | None:
    """The table of prices of a file. An invalid one ends the command."""
    from wharfinger.capacity.prices import BadPrices, load_prices

    try:
        return None if path is None else load_prices(path)
    except BadPrices as error:
        raise InputError("\n  ".join(["the prices cannot be used:", *error.problems])) from error


def read_audit_policy(path: Path | None) -> AuditPolicy | None:
    from wharfinger.apiserver.audit.policy import BadPolicyFile, load_policy

    if path is None:
        return None
    try:
        return load_policy(path)
    except BadPolicyFile as error:
        raise InputError(str(error)) from error


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
        raise InputError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, BadConfiguration, AttributeError) as error:
        raise InputError(f"{path}: {error}") from error


def open_client(kubeconfig: str | None, context: str | None, **options: Any) -> HttpClient:
    """A client for the cluster of these options. An unusable kubeconfig ends the command with a message."""
    from wharfinger.client.connect import connect
    from wharfinger.client.kubeconfig import KubeconfigError

    try:
        return connect(kubeconfig, context, **options)
    except KubeconfigError as error:
        raise InputError(str(error)) from error
