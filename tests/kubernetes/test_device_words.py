"""Objects of dynamic resource allocation that are refused: a real API server answers in the words that ours uses."""

from __future__ import annotations

import pytest
from tests.api.device_cases import EXPRESSIONS, REFUSED, RULES, Document
from tests.api.test_device_rules import ANSWERS, kind_of
from tests.kubernetes.binaries import VERSION
from tests.kubernetes.cluster import Cluster


def path(document: Document, name: str = "") -> str:
    return kind_of(document).resource().path(document["metadata"].get("namespace", ""), name)


@pytest.mark.skipif(VERSION != "1.37.1", reason="the answers on file are those of 1.37.1")
def test_the_answers_are_those_of_a_real_server(cluster: Cluster) -> None:
    api, said = cluster.api(), {}
    for case in (*REFUSED, *RULES, *EXPRESSIONS):
        answer = api.ask("POST", path(case.document), case.document)
        if case.changed is not None:
            assert answer.status == 201, f"{case.name}: {answer.data!r}"
            made = path(case.document, case.document["metadata"]["name"])
            answer = api.ask("PUT", f"{made}/status" if case.status else made, case.changed)
            assert api.ask("DELETE", f"{made}?gracePeriodSeconds=0").status == 200
        said[case.name] = answer.message if answer.status == 422 else f"{answer.status}: {answer.data!r}"
    assert {name: text for name, text in said.items() if text != ANSWERS[name]} == {}
