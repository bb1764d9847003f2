"""The same seed gives the same report to the byte, also when things go wrong on the way."""

from __future__ import annotations

import msgspec
import pytest

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import ServiceUnavailable
from wharfinger.api.kinds import registry
from wharfinger.simulate import cluster
from wharfinger.simulate.inputs import read_inputs
from wharfinger.simulate.simulation import SimulationOptions, simulate
from wharfinger.store import Store
from wharfinger.store.chain import Chain

SCENARIO = """
apiVersion: wharfinger.dev/v1alpha1
kind: WharfingerConfiguration
nodes: {count: 3}
---
apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
steps:
- fault: {bind: fail, count: 3}
- apply:
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      replicas: 6
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec: {containers: [{name: c, image: i}]}
- fault: [{restart: all}, {node: node-2, down: true}]
- at: 20m
  expect: [{kind: Pod, match: any, fields: {status.phase: Running}}]
"""


class Reluctant:
    """Lets two of three events be written only at a later try."""

    def __init__(self) -> None:
        self._asked = 0

    def review(self, request: Request) -> Review:
        if request.resource.plural != "events":
            return PASS
        self._asked += 1
        return PASS if self._asked % 3 == 0 else Review(ServiceUnavailable("not now"))


def report(seed: int) -> bytes:
    found = simulate(read_inputs([("f", SCENARIO)], registry()), SimulationOptions(seed=seed))
    assert all(each["ok"] for each in found["expectations"])
    return msgspec.json.encode(found)


def test_events_that_are_refused_for_a_while_do_not_make_runs_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    extend = cluster.extend_chain

    def extended(chain: Chain, store: Store, **options: object) -> None:
        extend(chain, store, **options)  # type: ignore[arg-type]  # passed on as they are
        chain.validating.append(Reluctant())

    monkeypatch.setattr(cluster, "extend_chain", extended)
    assert report(1) == report(1)
    assert report(1) != report(2)
