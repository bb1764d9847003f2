"""`status.typeChecking` of ValidatingAdmissionPolicies: whether expressions fit the types of the objects they are about."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.kinds.builtin import ADMISSION_POLICIES
from wharfinger.api.registry import Document, Kind, Registry
from wharfinger.api.schema.tree import Schema, schema_of
from wharfinger.apiserver.admission.authorizer import authorizer_functions
from wharfinger.apiserver.kept_objects import KeptObjects
from wharfinger.cel import Environment, InvalidExpression
from wharfinger.cel.library import DYN
from wharfinger.cel.schema_types import SchemaTypes

_MOST_TYPES = 10  # for each rule


class PolicyTypeChecks(KeptObjects):
    manager = "validatingadmissionpolicy-status"
    watched = (ADMISSION_POLICIES,)

    async def keep(self) -> None:
        for stored in list(self._store.scan(ADMISSION_POLICIES)):
            policy = stored.document()
            status, generation = policy.get("status") or {}, policy["metadata"].get("generation") or 1
            if (status.get("observedGeneration") or 0) >= generation:
                continue
            warnings = list(expression_warnings(policy.get("spec") or {}, self._store.registry))
            checked = {"typeChecking": {"expressionWarnings": warnings} if warnings else {}}
            fresh = {**policy, "status": {**status, **checked, "observedGeneration": generation}}
            await self.update(ADMISSION_POLICIES, fresh, "status")


def expression_warnings(spec: Document, registry: Registry) -> Iterator[Document]:
    """A warning for each expression that does not compile with the types of the objects that a policy matches."""
    environments = [
        (_described(kind, version), _environment(spec, registry, kind, version))
        for kind, version in _matched(spec, registry)
    ]
    for index, validation in enumerate(spec.get("validations") or ()):
        for part in ("expression", "messageExpression"):
            text = validation.get(part)
            if not text:
                continue
            faults = [
                f"{described}: {fault}\n"
                for described, environment in environments
                if environment is not None and (fault := _fault(environment, str(text)))
            ]
            if faults:
                yield {"fieldRef": f"spec.validations[{index}].{part}", "warning": "\n".join(faults)}


def _fault(environment: Environment, text: str) -> str:
    try:
        environment.compile(text)
    except InvalidExpression as error:
        # cel-go does not name the type, which has no name that users know.
        lines = str(error).splitlines()
        return "\n".join(line.partition(" not found in struct '")[0] for line in lines)
    return ""


def _described(kind: Kind, version: str) -> str:
    return f"{kind.group}/{version}, Kind={kind.kind}"


def _matched(spec: Document, registry: Registry) -> list[tuple[Kind, str]]:
    """The kinds that the rules of a policy name, without wildcards and subresources, in order."""
    found: dict[tuple[str, str, str], tuple[Kind, str]] = {}
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        groups, versions = rule.get("apiGroups") or [], rule.get("apiVersions") or []
        if any("*" in text for text in (*groups, *versions)):
            continue
        plurals = [one for one in rule.get("resources") or [] if not set("*/") & set(one)]
        count = 0
        for group in sorted(groups):
            for version in sorted(versions):
                for plural in sorted(plurals):
                    kind = registry.of_plural(group, plural)
                    if kind is not None and version in kind.versions and count < _MOST_TYPES:
                        found[group, version, kind.kind] = (kind, version)
                        count += 1
    return [found[key] for key in sorted(found)]


def _environment(spec: Document, registry: Registry, kind: Kind, version: str) -> Environment | None:
    """Variables with the types of a kind; None if nothing is known about its objects."""
    schema = _schema(kind, version)
    if schema is None:
        return None
    schemas = {"object": schema}
    wanted = spec.get("paramKind")
    if wanted:
        api_version, name = str(wanted.get("apiVersion") or ""), str(wanted.get("kind") or "")
        params = registry.of_object(api_version, name)
        if params is not None and (known := _schema(params, api_version.rpartition("/")[2])) is not None:
            schemas["params"] = known
    types = SchemaTypes({f"{name}_type": one for name, one in schemas.items()})
    variables = {
        "object": types.of("object_type"),
        "oldObject": types.of("object_type"),
        **dict.fromkeys(("request", "authorizer", "namespaceObject"), DYN),
    }
    if wanted:
        variables["params"] = types.of("params_type") if "params" in schemas else DYN
    for one in spec.get("variables") or ():
        environment = Environment(variables, authorizer_functions(), types=types.pool)
        try:
            result = environment.compile(str(one.get("expression") or "")).result
        except InvalidExpression:
            result = DYN
        variables = {**variables, f"variables.{one.get('name')}": result}
    return Environment(variables, authorizer_functions(), types=types.pool)


def _schema(kind: Kind, version: str) -> Schema | None:
    if version not in kind.versions or (not kind.builtin and kind.schema is None):
        return None
    found = schema_of(kind, version)
    return None if found.preserves else found
