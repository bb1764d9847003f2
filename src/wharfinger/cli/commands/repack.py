"""`wharf repack`: the fewest moves of pods that free nodes or make room."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from wharfinger.cli.options import output_option, read_prices_option, solver_options, state_options, strict_option

if TYPE_CHECKING:
    from wharfinger.repack.plans import RepackPlan


@click.command
@click.option("--free-nodes", type=click.IntRange(min=0), metavar="N", help="Free this many nodes.")
@click.option("--free-all", is_flag=True, help="Free all nodes that --nodes selects.")
@click.option("--nodes", "selector", default="", metavar="SELECTOR", help="Only free nodes with these labels.")
@click.option("--room", is_flag=True, help="Make room for all pods that wait for a node.")
@click.option(
    "--room-for",
    multiple=True,
    metavar="[KIND/]NAMESPACE/NAME",
    help="Make room for this pod, or for the pods of this workload that wait. Can be repeated.",
)
@click.option("--restore-order", is_flag=True, help="Move pods to better units of their ResourcePolicies.")
@click.option("--even-zones", is_flag=True, help="Even out how many pods of a workload each zone has.")
@click.option(
    "--defragment", metavar="NAME", default="", help="Gather what uses a resource or a device class on fewer nodes."
)
@click.option("--save-cost", is_flag=True, help="Free the nodes that save most money; needs --prices.")
@click.option("--prices", metavar="FILE", help="A table of prices per hour, in YAML or CSV.")
@state_options
@click.option("--seed", type=int, default=0, show_default=True, help="Breaks ties between equally good nodes.")
@solver_options("a better plan")
@click.option("--apply", "applied", is_flag=True, help="Carry the plan out on the live cluster.")
@click.option("--at-once", type=click.IntRange(min=1), default=1, show_default=True, help="Moves at a time.")
@click.option("--abort", "aborted", is_flag=True, help="End what `--apply` began; pods that were not evicted stay.")
@click.option("--proof/--no-proof", default=True, show_default=True, help="Whether to simulate every move.")
@strict_option
@output_option("table", "json", "yaml", "markdown")
def command(
    free_nodes: int | None,
    free_all: bool,
    selector: str,
    room: bool,
    room_for: tuple[str, ...],
    restore_order: bool,
    even_zones: bool,
    defragment: str,
    save_cost: bool,
    prices: str | None,
    snapshots: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    seed: int,
    solver: str,
    time_limit: str,
    applied: bool,
    at_once: int,
    aborted: bool,
    proof: bool,
    strict: bool,
    output: str,
) -> None:
    """Show the fewest moves of pods that free nodes, or make room for pods that wait.

    Every move is simulated: room is reserved on the target, the pod is evicted as disruption budgets allow, and its
    replacement runs there. Moves are printed in an order in which each is possible when its turn comes. A pod with the
    annotation `wharfinger.dev/disruption-cost: "5"` counts as five moves.

    With --apply the nodes to free are cordoned and the moves are made one after the other. The first surprise ends it;
    give the command again to go on. Pods that no controller creates again are not moved then.

    Exit status: 0 a plan was found, 1 there is none, 2 the input cannot be used.

    \b
    Examples:
      wharf repack --free-nodes 3 --cluster cluster.json.gz
      wharf repack --free-all --nodes pool=spot --cluster cluster.json.gz -o markdown
      wharf repack --room-for ml/train-0
      wharf repack --room-for deployment/shop/web
      wharf repack --save-cost --prices prices.csv --cluster cluster.json.gz
      wharf repack --free-nodes 3 --apply --at-once 2
    """
    from wharfinger.api.errors import ApiError
    from wharfinger.capacity.groups import priced_nodes
    from wharfinger.cli.progress import progress
    from wharfinger.cli.simulating import bad_input, live_inputs, progressing, read, seconds
    from wharfinger.repack.cp_sat import NoSolver
    from wharfinger.repack.finding import RepackOptions
    from wharfinger.repack.plans import RepackGoal
    from wharfinger.simulate.repacking import repack

    if applied and snapshots:
        raise click.UsageError("--apply changes a live cluster, so it cannot be used with --cluster")
    if aborted:
        _abort(kubeconfig, context)
        return
    goals = {
        "--free-nodes": free_nodes is not None,
        "--free-all": free_all,
        "--room": room,
        "--room-for": bool(room_for),
        "--restore-order": restore_order,
        "--even-zones": even_zones,
        "--defragment": bool(defragment),
        "--save-cost": save_cost,
    }
    if sum(goals.values()) != 1:
        *others, last = goals
        raise click.UsageError(f"say what the moves are for: one of {', '.join(others)} and {last}")
    if save_cost != (prices is not None):
        raise click.UsageError("--save-cost and --prices need each other: what is saved depends on prices")
    table = read_prices_option(prices)
    if free_all and not selector:
        raise click.UsageError("--free-all needs --nodes, which says what nodes to free")
    goal = RepackGoal(
        free_nodes,
        selector,
        free_all,
        room_for,
        room or bool(room_for),
        restore_order,
        even_zones,
        defragment,
        save_cost,
    )
    with bad_input():
        try:
            cluster, start = (read(snapshots, strict=strict), None) if snapshots else live_inputs(kubeconfig, context)
        except ApiError as error:
            raise click.ClickException(error.message) from error
        limit = seconds(time_limit, "--time-limit") if solver == "cp-sat" else None
        settings = RepackOptions(seed=seed, proof=proof, alone=not applied, solver_seconds=limit, start=start)
        if table is not None:
            settings.prices = priced_nodes([manifest.document for manifest in cluster.manifests], table)
        with progressing(), progress() as settings.progress:
            try:
                found = repack(cluster, goal, settings)
            except NoSolver as error:
                raise click.ClickException(f"--solver cp-sat needs OR-Tools: {error}") from error
    if output in ("json", "yaml"):
        from wharfinger.cli.output import emit

        emit(found.document(), output, kind="RepackPlan")
    else:
        click.echo(_markdown(found) if output == "markdown" else _text(found))
    if found.reached and applied and found.moves:
        sys.exit(0 if _apply(found, kubeconfig, context, at_once) else 1)
    sys.exit(0 if found.reached else 1)


def _apply(found: RepackPlan, kubeconfig: str | None, context: str | None, at_once: int) -> bool:
    import asyncio

    from wharfinger.api.kinds import registry
    from wharfinger.cli.options import open_client
    from wharfinger.repack.applying import apply_plan, summary
    from wharfinger.repack.jobs import migration_jobs

    def say(line: str) -> None:
        click.echo(line, err=True)

    async def run() -> bool:
        client = open_client(kubeconfig, context)
        try:
            made = await apply_plan(client, migration_jobs(registry()), found, say, at_once=at_once)
        finally:
            await client.close()
        for line in summary(made, found.freed):
            say(line)
        return not made.surprise

    return asyncio.run(run())


def _abort(kubeconfig: str | None, context: str | None) -> None:
    import asyncio

    from wharfinger.api.kinds import registry
    from wharfinger.api.wording import counted
    from wharfinger.cli.options import open_client
    from wharfinger.repack.applying import abort
    from wharfinger.repack.jobs import migration_jobs

    async def run() -> int:
        client = open_client(kubeconfig, context)
        try:
            return await abort(client, migration_jobs(registry()), click.echo)
        finally:
            await client.close()

    number = asyncio.run(run())
    ended = f"{counted(number, 'move')} {'was' if number == 1 else 'were'} ended"
    click.echo(ended if number else "no move was under way")


def _text(found: RepackPlan) -> str:
    from wharfinger.cli.output import paint, table

    lines = [paint(_headline(found), "green" if found.reached else "red", bold=True)]
    if found.moves:
        lines.append(table(("pod", "from", "to", "why"), _rows(found)))
    lines += _remarks(found)
    return "\n".join(lines)


def _markdown(found: RepackPlan) -> str:
    lines = [f"**{_headline(found)}**"]
    if found.moves:
        lines += ["", "| pod | from | to | why |", "|---|---|---|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in _rows(found)]
    remarks = _remarks(found)
    return "\n".join([*lines, "", *(f"- {each}" for each in remarks)] if remarks else lines)


def _rows(found: RepackPlan) -> list[tuple[str, str, str, str]]:
    return [(move.pod, move.source, move.target, move.why) for move in found.moves]


def _headline(found: RepackPlan) -> str:
    from wharfinger.api.wording import counted, listed

    if found.surprise:
        return f"The plan does not work: {found.surprise}"
    if found.blocked:
        return f"Not possible: {found.goal.text()}"
    one = "s" if len(found.moves) == 1 else ""
    gained = (
        f"free{one} {listed(found.freed, 10)}"
        if found.freed
        else f"let{one} {counted(len(found.started), 'pod')} start"
    )
    if found.measure:
        change = f"{found.measure}: {found.before} before, {found.after} after"
        return f"{counted(len(found.moves), 'move')}; {change}" if found.moves else f"Nothing to gain; {change}"
    if not found.moves and not found.goal.save_cost:
        return f"Nothing needs to move: {found.goal.text()}" + (f" ({listed(found.freed, 10)})" if found.freed else "")
    if found.goal.save_cost:
        saved = f"saves {found.saved:.4g} per hour"
        best = "no plan saves more" if found.optimal else f"no plan saves more than {found.most_saved:.4g}"
        if not found.moves:
            states = "is empty: removing it" if len(found.freed) == 1 else "are empty: removing them"
            return f"{listed(found.freed, 10)} {states} {saved}; {best}"
        return f"{counted(len(found.moves), 'move')} {gained}, which {saved}; {best}"
    bound = "no plan has fewer" if found.optimal else f"at least {found.document()['bound']} are needed"
    cost = found.document()["cost"]
    weighted = "" if cost == len(found.moves) else f", cost {cost}"
    return f"{counted(len(found.moves), 'move')}{weighted} {gained}; {bound}"


def _remarks(found: RepackPlan) -> list[str]:
    from wharfinger.api.wording import counted, listed

    remarks = list(found.blocked)
    alone = [move.pod for move in found.moves if not move.recreated]
    if alone:
        remarks.append(f"No controller creates {listed(alone, 5)} again: do so yourself after the eviction.")
    for budget in found.budgets:
        name = f"PodDisruptionBudget {budget.name}"
        remarks.append(f"{name} covers {counted(budget.moves, 'move')} and allows {budget.allowed} at a time.")
    remarks += [f"{pod} starts on {node}" for pod, node in found.started.items()]
    return remarks
