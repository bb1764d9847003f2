"""Finds policies and grants that probably do not mean what they say: a review of all policies together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from wharfinger.admission.rbac import Attributes
from wharfinger.admission.request import User
from wharfinger.api.fields import describe
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.kinds.views import PolicyDefaults, SchedulingPolicy
from wharfinger.systems.scheduling_policy.rules.checks import violations
from wharfinger.systems.scheduling_policy.rules.defaults import inject
from wharfinger.systems.scheduling_policy.rules.lookup import GROUPS, FixedPolicies, PolicyLookup
from wharfinger.systems.scheduling_policy.rules.merge import Strategy, merge
from wharfinger.systems.scheduling_policy.rules.wishes import Spec, read_wishes

EVERYONE = User("", ("system:serviceaccounts", "system:authenticated"))
"""What every service account is, whatever its namespace."""


class Identity(msgspec.Struct, frozen=True, eq=False):
    """Someone who is bound to a role, and where that counts; an empty namespace stands for all."""

    title: str
    user: User
    namespace: str = ""


class Finding(msgspec.Struct, frozen=True):
    rule: str
    policy: str  # empty where it concerns several
    message: str


def lint(world: FixedPolicies, identities: Iterable[Identity], strategy: Strategy) -> list[Finding]:
    """Findings sorted by rule and policy."""
    known, everybody = world.policies(), list(identities)
    usable = {each: world.usable(each.user, each.namespace, known.names) for each in everybody}
    found = [
        Finding("invalid", name, f"is not valid, and refuses all pods of those who may use it: {describe(faults)}")
        for name, faults in known.broken.items()
    ]
    found += _wildcards(world, everybody, known.policies.values())
    found += _unused(known.names, usable.values())
    if strategy == "first":
        found += _dead(known.names, usable)
    found += _broken_defaults(world, usable, strategy)
    return sorted(set(found), key=lambda each: (each.rule, each.policy, each.message))


def silenced(world: PolicyLookup, name: str) -> list[str]:
    """Under the strategy `first`: the policies that never apply, because everyone may use this one, which comes first."""
    others = [each for each in world.policies().names if each.encode() > name.encode()]
    return sorted(others) if others and name in _for_everyone(world, name) else []


def silencing(world: PolicyLookup, name: str) -> str:
    """Under the strategy `first`: the policy because of which this one never applies; empty for none."""
    before = (each for each in _for_everyone(world, name) if each.encode() < name.encode())
    return min(before, key=str.encode, default="")


def _for_everyone(world: PolicyLookup, name: str) -> frozenset[str]:
    """The policies that everyone may use, this one and all that exist: one question, since each may have to be asked."""
    return world.usable(EVERYONE, "", world.policies().names | {name})


def _wildcards(
    world: FixedPolicies, identities: Iterable[Identity], policies: Iterable[SchedulingPolicy]
) -> Iterator[Finding]:
    """Who may use every policy gets all requirements and defaults, of policies to come as well."""
    acting = sorted(each.name for each in policies if each.default != PolicyDefaults() or _requires(each))
    effect = f"the requirements and defaults of {', '.join(acting)}" if acting else "those of any policy to come"
    for each in identities:
        for group in GROUPS:
            asked = Attributes(each.user, "use", group, SCHEDULING_POLICIES.plural, namespace=each.namespace)
            if world.rbac.names_allowed(asked) is None:
                where = f" in namespace {each.namespace}" if each.namespace else ""
                yield Finding("wildcard", "", f"{each.title} may use every policy{where}, and gets {effect}")
                break


def _requires(policy: SchedulingPolicy) -> bool:
    section = policy.required
    return any(
        value is not None
        for value in (
            section.scheduler_names,
            section.priority_classes,
            section.node_selectors,
            section.tolerations,
            section.affinities,
            section.runtime_classes,
            section.spread,
        )
    )


def _unused(names: Collection[str], usable: Iterable[frozenset[str]]) -> Iterator[Finding]:
    used = frozenset().union(*usable)
    for name in names:
        if name not in used:
            yield Finding("unused", name, "nobody may use it: no role that is bound grants the verb use on it")


def _dead(names: Collection[str], usable: dict[Identity, frozenset[str]]) -> Iterator[Finding]:
    for name in names:
        users = [(each, held) for each, held in usable.items() if name in held]
        first = {min(held, key=str.encode) for _, held in users}
        if users and name not in first:
            by = ", ".join(sorted(first))
            yield Finding("dead", name, f"never applies under mergeStrategy first: all who may use it get {by} instead")


def _broken_defaults(
    world: FixedPolicies, usable: dict[Identity, frozenset[str]], strategy: Strategy
) -> Iterator[Finding]:
    """A pod that asks for nothing gets the defaults, and is then refused."""
    known = world.policies()
    alone = {frozenset((name,)): f"those who may use only {name}" for name in known.policies}
    together = {
        frozenset(
            held & known.policies.keys()
        ): f"{each.title}{f' in namespace {each.namespace}' if each.namespace else ''}"
        for each, held in usable.items()
    }
    for names, who in {**together, **alone}.items():
        merged = merge((known.policies[name] for name in names), strategy)
        wishes = read_wishes(Spec())
        inject(merged.default, {}, wishes)
        for one in violations(merged, wishes):
            for path, author in wishes.injected.items():
                if path.startswith(one.path) or one.path.startswith(path):
                    yield Finding("default", author, f"its default is refused for {who}: {one}")
                    break
