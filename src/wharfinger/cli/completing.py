"""Completion with live names: what the Tab key offers after `wharf explain pod`, in a shell and behind `kubectl wharf`.

Names come from the files given with `-f` or `--cluster`, and otherwise from the cluster. Whatever fails, nothing is
offered: an error message in the middle of a command line helps nobody.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from wharfinger.api.registry import Kind

Completer = Callable[[click.Context, click.Parameter, str], list[str]]

SECONDS = 3.0  # within which a cluster must answer
LIMIT = 500  # names of one kind
_FILES = (
    "snapshots",
    "paths",
    "files",
    "filenames",
)  # parameters with files of the state; the first that there is counts

# Bits of a directive to the shell, as Cobra defines them.
_DEFAULT, _NO_SPACE, _NO_FILES, _ONLY_FOLDERS = 0, 2, 4, 16


def names_of(kind: str) -> Completer:
    """Completes names of this kind: `NAME`, or `NAMESPACE/NAME` where no `--namespace` is given."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        return _starting(incomplete, _names(ctx, kind, incomplete))

    return complete


def names_of_given_kind(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completes names of the kind that is another argument of the command."""
    return _starting(incomplete, _names(ctx, str(ctx.params.get("kind") or ""), incomplete))


def kinds_and_names(*kinds: str) -> Completer:
    """Completes `KIND/NAME`."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        kind, slash, name = incomplete.partition("/")
        if not slash:
            return _starting(incomplete, (f"{each}/" for each in kinds))
        return _starting(incomplete, (f"{kind}/{found}" for found in _names(ctx, kind, name, qualified=False)))

    return complete


def word_and_names(word: str, kind: str) -> Completer:
    """Completes `WORD NAME`, two words of one argument."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        given = ctx.params.get(parameter.name or "") or ()
        return _starting(incomplete, _names(ctx, kind, incomplete) if word in given else [word])

    return complete


def contexts(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completes contexts of the kubeconfig."""
    from wharfinger.client.kubeconfig import context_names

    try:
        return _starting(incomplete, context_names(ctx.params.get("kubeconfig")))
    except ValueError:
        return []


def _starting(incomplete: str, found: Iterable[str]) -> list[str]:
    return sorted({each for each in found if each.startswith(incomplete)})


def _names(ctx: click.Context, name: str, incomplete: str, *, qualified: bool = True) -> list[str]:
    from wharfinger.api.kinds import registry

    kind = registry().find(name)
    if kind is None:
        return []
    files = next((ctx.params[each] for each in _FILES if each in ctx.params), ())
    try:
        found = _in_files(kind, files) if files else _in_cluster(ctx, kind, _namespace(ctx, incomplete))
    except Exception:
        return []
    given = _given_namespace(ctx)
    if not kind.namespaced:
        return [name for _, name in found]
    if given or not qualified:
        wanted = given or str(ctx.params.get("namespace") or "default")
        return [name for namespace, name in found if namespace == wanted]
    return [f"{namespace}/{name}" for namespace, name in found]


def _given_namespace(ctx: click.Context) -> str:
    from click.core import ParameterSource

    given = ctx.get_parameter_source("namespace") is ParameterSource.COMMANDLINE
    return str(ctx.params.get("namespace") or "") if given else ""


def _namespace(ctx: click.Context, incomplete: str) -> str:
    """The namespace to list; empty for all of them."""
    namespace, slash, _ = incomplete.partition("/")
    return _given_namespace(ctx) or (namespace if slash else "")


def _in_files(kind: Kind, files: Iterable[str]) -> list[tuple[str, str]]:
    from wharfinger.cli.simulating import read

    documents = (manifest.document for manifest in read(files, notes=False).manifests)
    metadata = [each["metadata"] for each in documents if each.get("kind") == kind.kind]
    return [(str(each.get("namespace") or "default"), str(each["name"])) for each in metadata if "name" in each]


def _in_cluster(ctx: click.Context, kind: Kind, namespace: str) -> list[tuple[str, str]]:
    import asyncio

    from wharfinger.client.connect import connect

    async def names() -> list[tuple[str, str]]:
        client = connect(ctx.params.get("kubeconfig"), ctx.params.get("context"))
        try:
            page = await client.list(kind.resource(), namespace if kind.namespaced else "", limit=LIMIT)
        finally:
            await client.close()
        found = (item["metadata"] for item in page.items)
        return [(str(each.get("namespace") or ""), str(each["name"])) for each in found]

    return asyncio.run(asyncio.wait_for(names(), SECONDS))


def kubectl_main() -> None:
    """`kubectl_complete-wharf`: kubectl calls it with the words after `kubectl wharf`, the last one incomplete, and reads
    one choice per line with its description, and a directive at the end."""
    from click.shell_completion import ShellComplete

    from wharfinger.cli.main import wharf

    *given, incomplete = sys.argv[1:] or [""]
    try:
        items = ShellComplete(wharf, {}, "kubectl wharf", "_WHARF_COMPLETE").get_completions(given, incomplete)
    except Exception:
        items = []  # words that cannot be parsed
    for item in items:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{_directive(items)}")


def _directive(items: list[CompletionItem[str]]) -> int:
    types = {item.type for item in items}
    if items and all(item.value.endswith("/") for item in items):
        return _NO_FILES | _NO_SPACE
    return _DEFAULT if "file" in types else _ONLY_FOLDERS if "dir" in types else _NO_FILES
