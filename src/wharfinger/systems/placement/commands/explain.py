"""`wharf explain placement`: why a placement selects its clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wharfinger.cli.asking import ExplainOptions, explain_options, namespace_option, split_name
from wharfinger.cli.completing import names_of

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.api.registry import Registry
    from wharfinger.client.interface import Client
    from wharfinger.client.timers import Clock
    from wharfinger.systems.placement.rules.explain import PlacementExplanation


@click.command("placement")
@click.argument("placement", metavar="[NAMESPACE/]NAME", shell_complete=names_of("placements"))
@explain_options
@namespace_option
def command(
    placement: str,
    namespace: str,
    options: ExplainOptions,
) -> None:
    """Show which clusters a placement selects, and for each cluster its score from each prioritizer, or the filter that
    rejects it and why.

    \b
    Examples:
      wharf explain placement apps/web -f fleet.yaml
    """
    namespace, name = split_name(placement, "the placement", namespace)
    story = options.ask(
        lambda client, clock, configuration, registry: explain_placement(
            client, clock, configuration, registry, namespace, name
        )
    )
    options.show("PlacementExplanation", story, placement_text)


async def explain_placement(
    client: Client, clock: Clock, configuration: Configuration, registry: Registry, namespace: str, name: str
) -> PlacementExplanation:
    """Loads the fleet as the placement controller does and explains the decision."""
    from wharfinger.api.errors import not_found
    from wharfinger.client.events import EventRecorder
    from wharfinger.client.informer import InformerSet
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.systems.placement.controllers.scheduling import PlacementController
    from wharfinger.systems.placement.kinds.names import PLACEMENTS

    informers = InformerSet(client)
    context = ControllerContext(
        client, informers, EventRecorder(client, "wharf-explain", clock), registry, clock, configuration
    )
    controller = PlacementController(context)
    informers.start()
    try:
        await informers.wait_synced()
        story = controller.explain((namespace, name))
    finally:
        await informers.stop()
    if story is None:
        raise not_found(PLACEMENTS.group, PLACEMENTS.plural, f"{namespace}/{name}")
    return story


def placement_text(story: PlacementExplanation, *, everything: bool) -> str:
    from wharfinger.api.wording import counted, listed
    from wharfinger.cli.explain_text import BEST, sorted_names
    from wharfinger.cli.output import paint, table
    from wharfinger.cli.report_text import left_out

    chosen = listed(story.selected, BEST)
    lines = [
        f"Placement {story.namespace}/{story.name}: {paint(chosen or 'selects nothing', 'green' if chosen else 'red', bold=True)}"
    ]
    if story.message:
        lines.append(f"{story.status}: {story.message}")
    ranked = sorted((each for each in story.clusters if each.total is not None), key=lambda each: each.rank or 0)
    if ranked:
        shown = ranked if everything else ranked[: max(BEST, len(story.selected))]
        parts = list(dict.fromkeys(part.prioritizer for each in ranked for part in each.parts))
        rows = []
        for each in shown:
            scores = {
                part.prioritizer: f"{part.score if part.score is not None else 'none'}×{part.weight}"
                for part in each.parts
            }
            rows.append(
                (
                    each.rank,
                    each.name,
                    "yes" if each.selected else each.reason or "no",
                    each.total,
                    *(scores.get(name, "-") for name in parts),
                )
            )
        lines += ["", paint(f"Feasible: {counted(len(ranked), 'cluster')}", "cyan", bold=True)]
        lines.append(table(("rank", "cluster", "selected", "total", *parts), rows))
        if len(shown) < len(ranked):
            lines.append(left_out(len(ranked) - len(shown)))
    asked = [each for each in story.clusters if each.capacity]
    if asked:
        lines += ["", paint("Capacity", "cyan", bold=True)]
        shown_asked = asked if everything else asked[:BEST]
        lines += [f"{each.name}: {each.capacity}" for each in shown_asked]
        if len(shown_asked) < len(asked):
            lines.append(left_out(len(asked) - len(shown_asked)))
    groups: dict[tuple[str, str], list[str]] = {}
    for each in story.clusters:
        if each.total is None and each.plugin:
            groups.setdefault((each.plugin, each.reason), []).append(each.name)
    if groups:
        ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        lines += ["", paint("Refused", "cyan", bold=True)]
        lines.append(
            table(
                ("clusters", "filter", "reason", "which"),
                [(len(names), plugin, reason, sorted_names(names, everything)) for (plugin, reason), names in ordered],
            )
        )
    return "\n".join(lines)
