"""`wharf completion`: the completion script for a shell."""

from __future__ import annotations

import click


@click.command
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    Examples:
      source <(wharf completion bash)                                    # in ~/.bashrc; zsh alike
      wharf completion fish > ~/.config/fish/completions/wharf.fish
    """
    from click.shell_completion import get_completion_class

    from wharfinger.cli.main import wharf

    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(wharf, {}, "wharf", "_WHARF_COMPLETE").source())
