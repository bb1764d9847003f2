"""`wharf explain policy`: the pods in each unit and group of a ResourcePolicy, those outside, and the order of scale-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wharfinger.cli.asking import ExplainOptions, explain_options, namespace_option, scheduler_config_option, split_name
from wharfinger.cli.completing import names_of

if TYPE_CHECKING:
    from wharfinger.systems.resource_policy.commands.policy_story import PolicyStory

_NAMED = 6


@click.command("policy")
@click.argument("policy", metavar="[NAMESPACE/]NAME", shell_complete=names_of("resourcepolicies"))
@explain_options
@namespace_option
@scheduler_config_option
def command(
    policy: str,
    namespace: str,
    options: ExplainOptions,
) -> None:
    """Show the pods in each unit and group of a ResourcePolicy, how much room is left there, which pods are outside all
    units, which wait, and in which order a scale-in would delete the pods of each workload.

    Exit status: 2 if there is no such policy, 1 on other errors.

    \b
    Examples:
      wharf explain policy shop/web -f cluster.yaml
    """
    from wharfinger.systems.resource_policy.commands.policy_story import explain_policy

    namespace, name = split_name(policy, "the policy", namespace)
    story = options.ask(
        lambda client, clock, configuration, registry: explain_policy(client, clock.now(), namespace, name)
    )
    options.show("ResourcePolicyExplanation", story, policy_text)


def policy_text(story: PolicyStory, *, everything: bool) -> str:
    from wharfinger.api.wording import counted, listed
    from wharfinger.cli.output import paint, table

    def named(names: tuple[str, ...]) -> str:
        return listed(names, len(names) if everything else _NAMED) or "-"

    lines = [f"ResourcePolicy {story.namespace}/{story.name}: {story.strategy}"]
    lines += [paint(f"Problem: {each}", "red") for each in story.problems]
    if story.units:
        grouped = any(each.group for each in story.units)
        header = ("unit", "priority", *(("group",) if grouped else ()), "pods", "max", "which")
        rows = [
            (
                *(each.unit, each.priority),
                *((each.group or "-",) if grouped else ()),
                *(each.count, each.most or "unlimited", named(each.pods)),
            )
            for each in story.units
        ]
        lines += ["", paint("Units, in the order in which they are filled", "cyan", bold=True), table(header, rows)]
    if story.outside:
        lines += ["", paint(f"Outside all units: {counted(len(story.outside), 'pod')}", "cyan", bold=True)]
        lines.append(f"  {named(story.outside)}")
    if story.waiting:
        lines += ["", paint(f"Waiting: {counted(len(story.waiting), 'pod')}", "cyan", bold=True)]
        shown = story.waiting if everything else story.waiting[:_NAMED]
        lines.append(table(("pod", "why"), [(name, why or "not tried yet") for name, why in shown]))
    if story.orders:
        lines += ["", paint("Scale-in deletes", "cyan", bold=True)]
        lines += [f"  {owner}: {named(tuple(pods))}" for owner, pods in story.orders.items()]
        lines.append("  (first to last; a pod's deletion cost is in brackets)")
    return "\n".join(lines)
