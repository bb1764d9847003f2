"""Selectors of devices at the real API server: it accepts what we accept, and refuses what we refuse."""

from __future__ import annotations

import pytest
from tests.devices.selector_expressions import ACCEPTED, ACCEPTED_ELSEWHERE, REFUSED
from tests.kubernetes.cluster import Cluster

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses?dryRun=All"


def status(cluster: Cluster, text: str) -> int:
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "selected"},
        "spec": {"selectors": [{"cel": {"expression": text}}]},
    }
    return cluster.api().ask("POST", CLASSES, document).status


@pytest.mark.parametrize(("texts", "wanted"), [((*ACCEPTED, *ACCEPTED_ELSEWHERE), 201), (REFUSED, 422)])
def test_kube_apiserver_has_the_same_opinion(cluster: Cluster, texts: tuple[str, ...], wanted: int) -> None:
    assert {text: status(cluster, text) for text in texts} == dict.fromkeys(texts, wanted)
