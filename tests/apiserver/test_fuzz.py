"""The HTTP surface against what schemathesis makes of our own OpenAPI: whatever comes, the answer is a decent one.

A short run over a few groups is part of the suite; `make fuzz-api` runs all groups, WHARF_FUZZ examples for each operation.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.apiserver.running import Api
from tests.support import require_module

EXAMPLES = int(os.environ.get("WHARF_FUZZ", "0"))
SHORT = ("apis/coordination.k8s.io/v1", "apis/scheduling.sigs.x-k8s.io/v1alpha1")
MEDIA = {"patch": ("application/merge-patch+json", "application/apply-patch+yaml", "application/json-patch+json")}
NAMES = ("a", "default", "fuzz", "%00", "a%2Fb", "..", "ü", "x" * 300)
PARAMETERS = (
    *("limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector", "dryRun"),
    *("fieldManager", "force", "fieldValidation", "pretty", "gracePeriodSeconds", "propagationPolicy"),
)
VALUES = ("All", "true", "0", "1", "-1", "Strict", "a=b", "metadata.name=a")
QUERIES = st.dictionaries(
    st.sampled_from(PARAMETERS), st.one_of(st.sampled_from(VALUES), st.text(max_size=9)), max_size=3
)


def groups() -> list[str]:
    if not EXAMPLES:
        return list(SHORT)
    from wharfinger.api.kinds import registry

    served = {
        (f"apis/{group}/" if group else "api/") + version
        for kind in registry()
        for group in (kind.group, *kind.alias_groups)
        for version in kind.versions
    }
    return sorted(served)


@pytest.mark.parametrize("group", groups())
def test_no_request_breaks_the_server(api: Api, namespace: str, group: str) -> None:
    require_module("schemathesis")
    import schemathesis

    schema: Any = schemathesis.openapi.from_dict(api.get(f"/openapi/v3/{group}"))
    for found in schema.get_all_operations():
        operation = found.ok()
        reading = operation.method.lower() == "get"
        most = EXAMPLES or (1 if reading else 2)

        @settings(
            max_examples=most,
            database=None,
            derandomize=True,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), name=st.sampled_from(NAMES), query=QUERIES, data=st.data())
        def attempt(case: Any, name: str, query: dict[str, str], data: st.DataObject) -> None:
            asked = case.as_transport_kwargs(base_url="")
            path = case.path.replace("{namespace}", namespace).replace("{name}", name)
            body = asked.get("json", asked.get("data"))
            if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
                body["metadata"].setdefault("name", "fuzz")
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode("utf-8", "replace")
            media = data.draw(st.sampled_from(MEDIA.get(case.method.lower(), ("application/json",))))
            check(api, case.method, path, query, sent, media)

        attempt()
    assert api.ask("GET", "/readyz").status == 200


def check(api: Api, method: str, path: str, query: dict[str, str], body: bytes | None, media: str) -> None:
    target = quote(path, safe="/%") + (f"?{urlencode(query, errors='replace')}" if query else "")
    answer = api.ask(method, target, body, media=media)
    told = (method, target, body, answer.status, answer.data[:500])
    assert answer.status < 500, told
    assert b"Traceback" not in answer.data, told
    if answer.status >= 400:
        document = answer.json
        assert (document["kind"], document["code"]) == ("Status", answer.status), told
        assert document["message"], told
