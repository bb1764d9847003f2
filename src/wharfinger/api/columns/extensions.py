"""Columns of webhook configurations, admission policies, CustomResourceDefinitions and APIServices."""

from __future__ import annotations

from wharfinger.api.columns.cells import AGE, CREATED_AT, UNSET, computed, condition, selector_text, spec
from wharfinger.api.registry import Column, Document

WEBHOOK_COLUMNS = (computed("Webhooks", lambda document: len(document.get("webhooks") or ()), type="integer"), AGE)


def _param_kind(policy: Document) -> str:
    kind = spec(policy).get("paramKind")
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET


def _param_ref(binding: Document) -> str:
    ref = spec(binding).get("paramRef")
    if not ref:
        return UNSET
    namespace = ref.get("namespace") or "*"
    if ref.get("name"):
        return f"{namespace}/{ref['name']}"
    return f"{namespace}/{selector_text(ref.get('selector'))}" if ref.get("selector") else UNSET


ADMISSION_POLICY_COLUMNS = (
    computed("Validations", lambda policy: len(spec(policy).get("validations") or ()), type="integer"),
    computed("ParamKind", _param_kind),
    AGE,
)

MUTATING_POLICY_COLUMNS = (
    computed("Mutations", lambda policy: len(spec(policy).get("mutations") or ()), type="integer"),
    computed("ParamKind", _param_kind),
    AGE,
)

ADMISSION_POLICY_BINDING_COLUMNS = (Column("PolicyName", "spec.policyName"), computed("ParamRef", _param_ref), AGE)

DEFINITION_COLUMNS = (CREATED_AT,)


def _service(api_service: Document) -> str:
    service = spec(api_service).get("service")
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def _available(api_service: Document) -> str:
    found = condition(api_service, "Available")
    if found is None:
        return "Unknown"
    status, reason = str(found.get("status", "")), found.get("reason")
    return f"{status} ({reason})" if reason and status != "True" else status


API_SERVICE_COLUMNS = (computed("Service", _service), computed("Available", _available), AGE)
