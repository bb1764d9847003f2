"""Random policies and pods: what is refused is what a plain reading of the rules refuses, path by path."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.systems.scheduling_policy.policies import Document, policy, world
from tests.systems.scheduling_policy.test_merge import KEYS, VALUES, lists, sparse, specs

from wharfinger.admission.request import service_account
from wharfinger.systems.scheduling_policy.kinds.views import HARD, SOFT
from wharfinger.systems.scheduling_policy.rules.defaults import apply_operations
from wharfinger.systems.scheduling_policy.rules.evaluate import Evaluation, PolicySubject, evaluate
from wharfinger.systems.scheduling_policy.rules.merge import Strategy

KINDS = {"nodeAffinities": "nodeAffinity", "podAffinities": "podAffinity", "podAntiAffinities": "podAntiAffinity"}
Rule = tuple[str, str | None, Document | None]
"""A kind of affinity, how hard (None: either), and what its expressions must be (None: anything)."""


class Reading:
    """The rules of several policies, read without any merging ahead: every question goes through all of them."""

    def __init__(self, policies: list[Document], strategy: Strategy) -> None:
        ordered = sorted(policies, key=lambda each: each["metadata"]["name"].encode())
        self.deep = strategy == "deep"
        self.specs = [each["spec"] for each in (ordered[:1] if strategy == "first" else ordered)]

    def given(self, section: str, component: str) -> list[Any]:
        """What the policies say of a component, in order; where they do not add up, the first only. An empty default says
        nothing."""
        found = [each[section][component] for each in self.specs if component in (each.get(section) or {})]
        found = [each for each in found if each or section != "default"]
        return found if self.deep else found[:1]

    def first(self, section: str, component: str) -> Any:
        return next(iter(self.given(section, component)), None)

    def first_by_key(self, section: str, component: str) -> Document:
        found: Document = {}
        for each in self.given(section, component):
            found = {**each, **found}
        return found

    def names(self, plural: str, singular: str) -> set[str] | None:
        lists = self.given("allowed", plural)
        if [] in lists:
            return None
        listed = {name for each in (*lists, *self.given("required", plural)) for name in each}
        return listed | set(self.given("default", singular))

    def required_affinities(self) -> list[Rule]:
        found: list[Rule] = []
        owners: dict[Any, int] = {}
        for index, tree in enumerate(self.given("required", "affinities")):
            for kind, hardness, pattern in rules(tree):
                keys = None if pattern is None else tuple(sorted(pattern.get("keys") or ()))
                if owners.setdefault((kind, hardness, keys), index) == index:
                    found.append((kind, hardness, pattern))
        return found

    def allowed_affinities(self) -> list[Rule]:
        trees = self.given("allowed", "affinities")
        everything: list[Rule] = [(kind, None, None) for kind in KINDS.values()]
        found = [rule for tree in trees for rule in (rules(tree) if tree else everything)]
        return found + [rule for tree in self.given("required", "affinities") for rule in rules(tree)]

    def with_defaults(self, spec: Document) -> Document:
        made = deepcopy(spec)
        if made["schedulerName"] == "default-scheduler":
            made["schedulerName"] = self.first("default", "schedulerName") or made["schedulerName"]
        if not made.get("priorityClassName"):
            made["priorityClassName"] = self.first("default", "priorityClasseName")
        made["nodeSelector"] = {**self.first_by_key("default", "nodeSelector"), **(made.get("nodeSelector") or {})}
        made["tolerations"] = made.get("tolerations") or deepcopy(self.first("default", "tolerations") or [])
        return made

    def refused(self, spec: Document) -> set[str]:
        pod = self.with_defaults(spec)
        return {*self._names(pod), *self._selectors(pod), *self._tolerations(pod), *self._affinities(pod)}

    def _names(self, pod: Document) -> set[str]:
        wrong = set()
        for field, plural, default in (
            ("schedulerName", "schedulerNames", "schedulerName"),
            ("priorityClassName", "priorityClasseNames", "priorityClasseName"),
        ):
            wanted, may = self.first("required", plural), self.names(plural, default)
            has = pod[field]
            if wanted is not None:
                wrong |= {field} if has not in wanted else set()
            elif has and may is not None and has not in may:
                wrong.add(field)
        return wrong

    def _selectors(self, pod: Document) -> set[str]:
        selector, wanted = pod["nodeSelector"], self.first_by_key("required", "nodeSelectors")
        wrong = {
            f"nodeSelector[{key}]"
            for key, values in wanted.items()
            if key not in selector or (values and selector[key] not in values)
        }
        maps = self.given("allowed", "nodeSelectors")
        if {} in maps:
            return wrong
        if pod.get("nodeName"):
            wrong.add("nodeName")
        maps += self.given("required", "nodeSelectors")
        maps += [{key: [value] for key, value in each.items()} for each in self.given("default", "nodeSelector")]
        for key, value in selector.items():
            fits = any(key in each and (not each[key] or value in each[key]) for each in maps)
            if key not in wanted and not fits:
                wrong.add(f"nodeSelector[{key}]")
        return wrong

    def _tolerations(self, pod: Document) -> set[str]:
        wrong, wanted = set(), self.first("required", "tolerations")
        if wanted is not None and not any(tolerated(each, one) for each in wanted for one in pod["tolerations"]):
            wrong.add("tolerations")
        lists = self.given("allowed", "tolerations")
        if [] in lists:
            return wrong
        patterns = [pattern for each in (*lists, *self.given("required", "tolerations")) for pattern in each]
        defaults = [one for each in self.given("default", "tolerations") for one in each]
        for index, one in enumerate(pod["tolerations"]):
            if one not in defaults and not any(tolerated(each, one) for each in patterns):
                # A default allows what it says and, where it leaves something open, everything there.
                if not any(tolerated(exactly(each), one) for each in defaults):
                    wrong.add(f"tolerations[{index}]")
        return wrong

    def _affinities(self, pod: Document) -> set[str]:
        wrong, affinity = set(), pod.get("affinity") or {}
        node = affinity.get("nodeAffinity") or {}
        hard = (node.get(HARD) or {}).get("nodeSelectorTerms") or []
        soft = [each["preference"] for each in node.get(SOFT) or []]
        base = "affinity.nodeAffinity"
        terms = {
            HARD: [(f"{base}.{HARD}.nodeSelectorTerms[{index}]", term) for index, term in enumerate(hard)],
            SOFT: [(f"{base}.{SOFT}[{index}].preference", term) for index, term in enumerate(soft)],
        }
        for kind, hardness, pattern in self.required_affinities():
            either = (hardness,) if hardness else (HARD, SOFT)
            missing = f"affinity.{kind}.{hardness}" if hardness else f"affinity.{kind}"
            if kind != "nodeAffinity":
                if not any((affinity.get(kind) or {}).get(each) for each in either):
                    wrong.add(missing)
                continue
            found = [item for each in either for item in terms[each]]
            if not found:
                wrong.add(missing)
            elif pattern is not None:
                wrong |= {
                    f"{path}.matchExpressions"
                    for path, term in found
                    if not any(expressed(pattern, one) for one in term["matchExpressions"])
                }
        allowed = self.allowed_affinities()
        for hardness, found in terms.items():
            patterns = [rule[2] for rule in allowed if rule[0] == "nodeAffinity" and rule[1] in (None, hardness)]
            if not found or None in patterns:
                continue
            if not patterns:
                wrong.add(f"{base}.{hardness}")
            wrong |= {
                f"{path}.matchExpressions[{index}]"
                for path, term in found
                for index, one in enumerate(term["matchExpressions"])
                if patterns and not any(each is not None and expressed(each, one) for each in patterns)
            }
        for kind in ("podAffinity", "podAntiAffinity"):
            for hardness in affinity.get(kind) or {}:
                if not any(rule[0] == kind and rule[1] in (None, hardness) for rule in allowed):
                    wrong.add(f"affinity.{kind}.{hardness}")
        return wrong


def rules(tree: Document) -> list[Rule]:
    found: list[Rule] = []
    for listed, kind in KINDS.items():
        if tree.get(listed) == {}:
            found.append((kind, None, None))
        for hardness, leaf in (tree.get(listed) or {}).items():
            patterns = [one for term in leaf.get("nodeSelectorTerms") or () for one in term["matchExpressions"]]
            found += [(kind, hardness, one) for one in patterns or [None]]
    return found


def tolerated(pattern: Document, one: Document) -> bool:
    exists = one.get("operator") == "Exists"
    effects = pattern.get("effects") or []
    return (
        (not pattern.get("keys") or one.get("key") in pattern["keys"])
        and (not pattern.get("operators") or (one.get("operator") or "Equal") in pattern["operators"])
        and (not pattern.get("values") or (not exists and one.get("value", "") in pattern["values"]))
        and (not effects or (one["effect"] in effects if one.get("effect") else len(set(effects)) == 3))
    )


def exactly(one: Document) -> Document:
    pattern = {"keys": [one["key"]], "operators": [one.get("operator") or "Equal"]}
    if pattern["operators"] == ["Equal"]:
        pattern["values"] = [one.get("value", "")]
    return {**pattern, "effects": [one["effect"]]} if one.get("effect") else pattern


def expressed(pattern: Document, one: Document) -> bool:
    return (
        (not pattern.get("keys") or one["key"] in pattern["keys"])
        and (not pattern.get("operators") or one["operator"] in pattern["operators"])
        and (
            not pattern.get("values")
            or (one.get("values") and all(value in pattern["values"] for value in one["values"]))
        )
    )


def without_affinity(spec: Document) -> Document:
    """Default affinity is folded and joined; tests of its own speak of it."""
    default = {key: value for key, value in (spec.get("default") or {}).items() if key != "affinity"}
    return {**spec, "default": default}


one_expression = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([*KEYS, "k9"]),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": lists(VALUES, 1),
        }
    ),
    st.fixed_dictionaries({"key": st.sampled_from(KEYS), "operator": st.just("Exists")}),
)
term = st.fixed_dictionaries({"matchExpressions": st.lists(one_expression, min_size=1, max_size=2)})
node_affinity = sparse(
    **{
        HARD: st.fixed_dictionaries({"nodeSelectorTerms": st.lists(term, min_size=1, max_size=2)}),
        SOFT: st.lists(st.fixed_dictionaries({"weight": st.just(1), "preference": term}), min_size=1, max_size=2),
    }
)
between_pods = sparse(
    **{
        HARD: st.just([{"topologyKey": "zone"}]),
        SOFT: st.just([{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]),
    }
)
effect = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute", ""])
toleration = st.one_of(
    st.fixed_dictionaries({"operator": st.just("Exists"), "effect": effect}, optional={"key": st.sampled_from(KEYS)}),
    st.fixed_dictionaries({"key": st.sampled_from(KEYS), "value": st.sampled_from(VALUES), "effect": effect}),
)
pod_specs = st.fixed_dictionaries(
    {"schedulerName": st.sampled_from(["default-scheduler", "s1", "s9"])},
    optional={
        "priorityClassName": st.sampled_from(["gold", "iron", "lead"]),
        "nodeName": st.just("n1"),
        "nodeSelector": st.dictionaries(st.sampled_from([*KEYS, "k9"]), st.sampled_from([*VALUES, "v9"]), max_size=2),
        "tolerations": st.lists(toleration, min_size=1, max_size=2),
        "affinity": sparse(nodeAffinity=node_affinity, podAffinity=between_pods, podAntiAffinity=between_pods),
    },
)


@settings(max_examples=200, deadline=None)
@given(st.lists(specs, min_size=1, max_size=3), pod_specs, st.sampled_from(["deep", "first", "simple"]))
def test_what_is_refused_is_what_the_rules_say(
    given_specs: list[Document], pod_spec: Document, strategy: Strategy
) -> None:
    policies = [policy(f"p{index}", without_affinity(spec)) for index, spec in enumerate(given_specs)]
    subject = PolicySubject(deepcopy(pod_spec), (service_account("shop", "default"),), "shop")
    found = evaluate(world(*policies), subject, strategy=strategy)
    assert {each.path.removeprefix("spec.") for each in found.violations} == Reading(policies, strategy).refused(
        pod_spec
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(specs, min_size=1, max_size=3), pod_specs, st.sampled_from(["deep", "first", "simple"]))
def test_asked_again_nothing_is_added_and_the_answer_is_the_same(
    given_specs: list[Document], pod_spec: Document, strategy: Strategy
) -> None:
    where = world(*(policy(f"p{index}", spec) for index, spec in enumerate(given_specs)))
    document = {"spec": deepcopy(pod_spec)}

    def judged(injecting: bool) -> Evaluation:
        subject = PolicySubject(document["spec"], (service_account("shop", "default"),), "shop", injecting=injecting)
        return evaluate(where, subject, strategy=strategy)

    first = judged(injecting=True)
    apply_operations(document, first.operations)
    second, last = judged(injecting=True), judged(injecting=False)
    assert not second.operations
    assert {one.path for one in first.violations} == {one.path for one in last.violations}
