"""`wharf policy`: what scheduling policies do to a pod, who may create it, and a policy for what runs today."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import F, cluster_options, open_client, output_option

if TYPE_CHECKING:
    from wharfinger.systems.scheduling_policy.commands.policy_world import PolicyWorld


_ACCOUNT = "system:serviceaccount:"
_OTHERS = "any other service account of "


@click.group
def command() -> None:
    """Ask what scheduling policies do."""


def _files(function: F) -> F:
    return click.option(
        "-f", "--filename", "filenames", multiple=True, metavar="PATH", help="A file, a folder, or - for stdin."
    )(function)


@command.command("check")
@_files
@cluster_options
@click.option(
    "--as", "requester", metavar="USER", default="system:admin", show_default=True, help="The user who sends it."
)
@click.option("--as-group", "groups", metavar="GROUP", multiple=True, help="A group of the requester.")
@click.option("--service-account", default="", metavar="NAME", help="The account of the pod. Default: the pod's own.")
@click.option("-n", "--namespace", default="", help="The namespace of objects without one.")
@output_option("table", "json", "yaml")
@click.pass_context
def check(
    ctx: click.Context,
    filenames: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    requester: str,
    groups: tuple[str, ...],
    service_account: str,
    namespace: str,
    output: str,
) -> None:
    """Show what would be injected into pods, what would be refused, and by which policy.

    Policies, roles and bindings are read from the files if these contain a policy, and from the cluster otherwise. With
    --kubeconfig or --context, the files are applied on top of the cluster's objects. Exit status: 0 nothing is refused,
    1 something is refused, 2 the question cannot be answered.

    \b
    Examples:
      wharf policy check -f pod.yaml -f policies/ --as system:serviceaccount:shop:web
    """
    from wharfinger.cli.output import emit
    from wharfinger.systems.scheduling_policy.commands.policy_world import asker, explain, request_for

    world = _world(filenames, kubeconfig, context)
    built = world.build()
    who = asker(requester, groups, namespace, service_account)
    reports = [explain(built, world.settings, request_for(document, who)) for document in world.judged]
    if output == "table":
        click.echo("\n\n".join(_text(report) for report in reports))
    else:
        emit({"kind": "PolicyCheck", "items": reports}, output)
    ctx.exit(0 if all(report["admitted"] for report in reports) else 1)


@command.command("who-can")
@_files
@cluster_options
@click.option("-n", "--namespace", default="", help="The namespace of objects without one.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Consider every known namespace.")
@output_option("table", "json", "yaml")
def who_can(
    filenames: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    all_namespaces: bool,
    output: str,
) -> None:
    """List who may create a pod, or the pods of a workload, with the policies that allow it.

    \b
    Examples:
      wharf policy who-can -f pod.yaml
    """
    from copy import deepcopy

    from wharfinger.cli.output import emit, table
    from wharfinger.systems.scheduling_policy.commands.policy_world import RESERVING, explain, namespace_of, request_for

    world = _world(filenames, kubeconfig, context)
    built, rows, lines = world.build(), [], []
    for document in world.judged:
        reserves = document["kind"] in RESERVING
        own = namespace_of(document, namespace)
        for place in sorted({own, *world.namespaces}) if all_namespaces and not reserves else [own]:
            found = []
            for identity, who in _identities(world, place, reserves):
                copy = deepcopy(document)
                if place != own or "namespace" not in document["metadata"]:
                    copy["metadata"]["namespace"] = place
                report = explain(built, world.settings, request_for(copy, who))
                row = {
                    "object": report["object"],
                    "namespace": place,
                    "identity": identity,
                    "policies": report["policies"],
                    "injected": report["injected"],
                }
                found.append((row, report["podsAdmittedWhenEnforced"]))
            rows += [row for row, admitted in found if admitted]
            lines += [row for row, admitted in _together(found, place) if admitted]
    if output != "table":
        emit({"kind": "PolicyWhoCan", "items": rows}, output)
    elif rows:
        header = ("object", "namespace", "identity", "policies")
        click.echo(table(header, [[*(row[name] for name in header[:3]), ", ".join(row["policies"])] for row in lines]))
    else:
        click.echo("nobody; `wharf policy check` says why")


@command.command("suggest")
@_files
@cluster_options
@click.option("-n", "--namespace", required=True, help="The namespace.")
@click.option("--name", default="", help="Name of the policy. Default: the name of the namespace.")
@click.option(
    "--require/--allow-only", default=True, help="Whether to require what all pods ask for.  [default: require]"
)
@output_option("yaml", "json", default="yaml")
def suggest(
    filenames: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    name: str,
    require: bool,
    output: str,
) -> None:
    """Print the tightest policy that admits what runs in a namespace today, with a role and a binding for it.

    Workloads in files count with the pods they create.

    \b
    Examples:
      wharf policy suggest -n shop | kubectl apply -f -
      kubectl get pods -n shop -o yaml | wharf policy suggest -n shop -f -
    """
    from wharfinger.api.names import dns_subdomain
    from wharfinger.systems.scheduling_policy.commands.policy_world import InvalidQuestion, pod_of
    from wharfinger.systems.scheduling_policy.rules.suggest import manifests_for

    world = _world(filenames, kubeconfig, context, pods_of=namespace, from_files=bool(filenames))
    pods = [
        each
        for each in (*world.pods, *map(pod_of, world.judged))
        if each is not None and (each["metadata"].get("namespace") or "default") == namespace
    ]
    if faults := dns_subdomain(name or namespace):
        raise InvalidQuestion(f"--name {name or namespace}: {faults[0]}")
    found = manifests_for(namespace, pods, name=name, global_class=world.global_class(), requiring=require)
    if not found:
        raise InvalidQuestion(f"no pod runs in namespace {namespace}")
    _print_manifests(found, output)


@command.command("lint")
@_files
@cluster_options
@output_option("table", "json", "yaml")
@click.pass_context
def lint(
    ctx: click.Context, filenames: tuple[str, ...], kubeconfig: str | None, context: str | None, output: str
) -> None:
    """Find policies and grants that probably do not mean what they say.

    Findings: `wildcard` (an account may use every policy, and gets all their requirements and defaults), `dead` (under
    mergeStrategy first, another policy always comes first), `default` (a default that the requirements refuse),
    `unused` and `invalid`. Policies come from the files where they hold any, and from the cluster otherwise. The exit
    code is 1 when something is found.

    \b
    Examples:
      wharf policy lint
      wharf policy lint -f policies/
    """
    from wharfinger.cli.output import emit, table
    from wharfinger.systems.scheduling_policy.commands.policy_world import bound_identities
    from wharfinger.systems.scheduling_policy.rules.lint import lint as find

    world = _world(filenames, kubeconfig, context, judging=False)
    found = find(world.build(), bound_identities(world), world.settings.merge_strategy)
    if output != "table":
        items = [{"rule": each.rule, "policy": each.policy, "message": each.message} for each in found]
        emit({"kind": "PolicyLint", "items": items}, output)
    elif found:
        click.echo(
            table(("rule", "policy", "finding"), [(each.rule, each.policy or "-", each.message) for each in found])
        )
    else:
        click.echo("nothing found")
    ctx.exit(1 if found else 0)


@command.command("effective")
@_files
@cluster_options
@click.option("-n", "--namespace", required=True, help="The namespace of the pods.")
@click.option(
    "--service-account", default="default", show_default=True, help="The service account that the pods run as."
)
@output_option("table", "json", "yaml")
@click.pass_context
def effective(
    ctx: click.Context,
    filenames: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    service_account: str,
    output: str,
) -> None:
    """Show what holds for a service account: the merged policies, and where each part comes from.

    The exit code is 1 if the account may use no policy.

    \b
    Examples:
      wharf policy effective -n shop --service-account web
    """
    from wharfinger.admission.request import service_account as account_user
    from wharfinger.cli.output import as_json, emit, table
    from wharfinger.systems.scheduling_policy.rules.effective import effective_rules

    world = _world(filenames, kubeconfig, context, judging=False)
    built, strategy = world.build(), world.settings.merge_strategy
    known = built.policies()
    user = account_user(namespace, service_account)
    usable = built.usable(user, namespace, known.names)
    merged = known.merged(frozenset(usable & known.policies.keys()) - known.audited, strategy)
    rules = effective_rules(known.policies.values(), merged, strategy)
    if output != "table":
        document = {
            "kind": "EffectivePolicy",
            "identity": user.name,
            "namespace": namespace,
            "mergeStrategy": strategy,
            "policies": list(merged.policies),
            "invalidPolicies": sorted(usable & known.broken.keys()),
            "rules": [
                {
                    "section": each.section,
                    "component": each.component,
                    "value": each.value,
                    "policies": list(each.policies),
                }
                for each in rules
            ],
        }
        emit(document, output)
    else:
        click.echo(f"{user.name} in namespace {namespace}, mergeStrategy {strategy}")
        click.echo(f"policies: {', '.join(merged.policies) or '<none usable: every pod is refused>'}")
        if broken := sorted(usable & known.broken.keys()):
            click.echo(f"invalid, so every pod is refused: {', '.join(broken)}")
        rows = [
            (each.section, each.component, _inline(each.value, as_json), ", ".join(each.policies)) for each in rules
        ]
        if rows:
            click.echo()
            click.echo(table(("section", "component", "value", "from"), rows))
    ctx.exit(0 if merged.policies else 1)


class _PresetName(click.ParamType[str]):
    name = "preset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from wharfinger.systems.scheduling_policy.rules.shipped import PRESETS

        if value not in PRESETS:
            self.fail(f"there is no preset {value}; presets are {', '.join(PRESETS)}", param, ctx)
        return str(value)


@command.command("preset")
@click.argument("name", type=_PresetName())
@click.option(
    "-n", "--namespace", default="default", show_default=True, help="The namespace whose service accounts may use it."
)
@output_option("yaml", "json", default="yaml")
def preset(name: str, namespace: str, output: str) -> None:
    """Write an optional policy, with the role and binding to use it.

    The presets restricted-multiarch-by-node-selector and restricted-multiarch-by-affinity require an architecture and
    an operating system, amd64 and linux by default. They are not there until you apply them, because holders of
    wildcard rights may use every policy, and would get these defaults, too.

    \b
    Examples:
      wharf policy preset restricted-multiarch-by-affinity -n shop | kubectl apply -f -
    """
    from wharfinger.api.names import dns_label
    from wharfinger.systems.scheduling_policy.commands.policy_world import InvalidQuestion
    from wharfinger.systems.scheduling_policy.rules import shipped

    if faults := dns_label(namespace):
        raise InvalidQuestion(f"--namespace {namespace}: {faults[0]}")
    _print_manifests(shipped.preset(name, namespace), output)


# Shared by the commands


def _print_manifests(manifests: list[dict[str, Any]], output: str) -> None:
    from wharfinger.cli.output import as_json, as_yaml

    if output == "json":
        click.echo(as_json({"apiVersion": "v1", "kind": "List", "items": manifests}))
    else:
        click.echo("\n---\n".join(as_yaml(each) for each in manifests))


def _world(
    filenames: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    *,
    pods_of: str | None = None,
    from_files: bool = False,
    judging: bool = True,
) -> PolicyWorld:
    import asyncio

    from wharfinger.api.errors import ApiError
    from wharfinger.systems.scheduling_policy.commands.policy_world import (
        InvalidQuestion,
        is_judged,
        read_files,
        world_of_cluster,
        world_of_files,
    )

    judging = judging and pods_of is None
    if judging and not filenames:
        raise click.UsageError("name the manifests to ask about: -f PATH, or -f - for standard input")
    inputs = read_files(filenames)
    if judging and not any(is_judged(each.document) for each in inputs.manifests):
        raise InvalidQuestion("the files hold no pod and no workload to ask about")
    offline = from_files or any(each.document["kind"] == "SchedulingPolicy" for each in inputs.manifests)
    if offline and kubeconfig is None and context is None:
        return world_of_files(inputs)

    async def fetch() -> PolicyWorld:
        client = open_client(kubeconfig, context)
        try:
            return await world_of_cluster(client, inputs, pods_of=pods_of)
        finally:
            await client.close()

    try:
        return asyncio.run(fetch())
    except (ApiError, click.ClickException) as error:
        failed = click.ClickException if isinstance(error, ApiError) else InvalidQuestion
        raise failed(f"{error.message}; without a cluster, give the policies in files, too") from error


def _together(found: list[tuple[dict[str, Any], bool]], namespace: str) -> list[tuple[dict[str, Any], bool]]:
    """One line for all service accounts of a namespace that are treated alike."""
    accounts = [(row, admitted) for row, admitted in found if row["identity"].startswith((_ACCOUNT, _OTHERS))]
    if any((row["policies"], admitted) != (accounts[0][0]["policies"], accounts[0][1]) for row, admitted in accounts):
        return found
    together = {**accounts[0][0], "identity": f"any service account of {namespace}"}
    return [(together, accounts[0][1]), *(one for one in found if one not in accounts)]


def _identities(world: PolicyWorld, namespace: str, reserves: bool) -> list[tuple[str, Any]]:
    """Every identity that can be told apart in a namespace: its service accounts and, where the requester counts too
    (for reservations, and with `identity: ServiceAccountOrUser`), every user and group that is bound there."""
    from wharfinger.admission.request import User, service_account
    from wharfinger.systems.scheduling_policy.commands.policy_world import Asker

    names = {name for place, name in world.accounts if place == namespace} | {"default"}
    others: set[tuple[str, str]] = set()
    for (kind, place, _), binding in world.rbac.items():
        if kind.endswith("Binding") and place in ("", namespace):
            for subject in binding.get("subjects") or ():
                if subject.get("kind") == "ServiceAccount" and (subject.get("namespace") or place) == namespace:
                    names.add(str(subject.get("name")))
                elif subject.get("kind") == "User" and str(subject.get("name")).startswith(f"{_ACCOUNT}{namespace}:"):
                    names.add(str(subject["name"]).rpartition(":")[2])
                elif subject.get("kind") in ("User", "Group"):
                    others.add((subject["kind"], str(subject.get("name"))))

    def account(name: str) -> Asker:
        return Asker(service_account(namespace, name)) if reserves else Asker(User("nobody"), namespace, name)

    found = [(f"{_ACCOUNT}{namespace}:{name}", account(name)) for name in sorted(names)]
    found.append((f"{_OTHERS}{namespace}", account("another-account")))
    if reserves or world.settings.identity == "ServiceAccountOrUser":
        for kind, name in sorted(others):
            user = User(name, ("system:authenticated",)) if kind == "User" else User("", (name, "system:authenticated"))
            found.append((f"{kind} {name}", Asker(user, "" if reserves else namespace)))
    return found


def _text(report: dict[str, Any]) -> str:
    from wharfinger.cli.output import as_json, paint
    from wharfinger.systems.scheduling_policy.commands.policy_world import RESERVING
    from wharfinger.systems.scheduling_policy.rules.subjects import DAEMON_SET_CONTROLLER

    verdict = paint("admitted", "green") if report["admitted"] else paint("refused", "red", bold=True)
    mode = "only the shipped ones exist" if report["mode"] == "off" else f"mode {report['mode']}"
    enforced = "" if report["mode"] == "enforce" else f" if policies were enforced ({mode})"
    of_pods = report["admittedWhenEnforced"] and not report["podsAdmittedWhenEnforced"]
    if of_pods:
        reserves = report["object"].split(maxsplit=1)[0] in RESERVING
        verdict += ", with a warning" if reserves else f", but its pods would be refused{enforced}"
    elif report["admitted"] and not report["admittedWhenEnforced"]:
        verdict += f", but would be refused{enforced}"
    lines = [f"{report['object']}: {verdict}"]
    if report["notJudged"]:
        lines.append(f"  not judged: {report['notJudged']}")
    if report["identities"]:
        lines.append(f"  identity:   {', '.join(report['identities'])} in namespace {report['namespace']}")
        asked = report["requester"]
        if asked.startswith(_ACCOUNT) and asked not in (*report["identities"], DAEMON_SET_CONTROLLER):
            lines.append(f"  requester:  {asked} does not count; --service-account runs the pod as it")
        lines.append(f"  policies:   {', '.join(report['policies']) or '<none usable>'}")
    if report["auditedPolicies"]:
        lines.append(f"  only report: {', '.join(report['auditedPolicies'])}")
    for title, items, show in _PARTS:
        if title == "warnings" and of_pods:
            continue  # they repeat what was said of the pods
        if report[title]:
            lines.append(f"  {items}:")
            lines += [f"    {show(each, as_json)}" for each in report[title]]
    if report["auditReport"]:
        lines.append(f"  under audit: {report['auditReport']}")
    return "\n".join(lines)


def _inline(value: Any, as_json: Callable[[Any], str]) -> str:
    return " ".join(as_json(value).split())


_PARTS: tuple[tuple[str, str, Callable[[Any, Callable[[Any], str]], str]], ...] = (
    (
        "injected",
        "injected",
        lambda each, as_json: f"{each['path']} = {_inline(each['value'], as_json)}  (default of {each['policy']})",
    ),
    ("violations", "refused", lambda each, as_json: f"{each['path']}: {each['message']}"),
    ("setAside", "set aside", lambda each, as_json: str(each)),
    ("warnings", "warnings", lambda each, as_json: str(each)),
)
