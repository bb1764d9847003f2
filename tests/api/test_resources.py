"""Pod resource arithmetic: effective requests and limits, scoring stand-ins, quality of service."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.resources import limits, nonzero_requests, qos_class, requests, requests_by_status, requests_nano
from wharfinger.api.views import Pod, view
from wharfinger.api.views.pods import PodStatus

MI = 1024 * 1024


def container(name: str = "c", requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), status: Any = None, **spec: Any) -> Pod:
    document = {"spec": {"containers": list(containers), "initContainers": list(init), **spec}, "status": status or {}}
    return view(document, Pod)


def sidecar(**requests: str) -> dict[str, Any]:
    return container("s", requests, restartPolicy="Always")


@pytest.mark.parametrize(
    ("case", "subject", "expected"),
    [
        ("no container asks for anything", pod(container()), {}),
        ("containers add up", pod(container("a", {"cpu": "100m"}), container("b", {"cpu": "1", "memory": "1Mi"})), {"cpu": 1100, "memory": MI}),
        ("fractions are rounded up once, after adding", pod(container("a", {"cpu": "0.5m"}), container("b", {"cpu": "0.5m"})), {"cpu": 1}),
        ("a large init container sets the floor", pod(container("a", {"cpu": "1"}), init=(container("i", {"cpu": "3", "memory": "2Mi"}),)), {"cpu": 3000, "memory": 2 * MI}),
        ("a small init container does not count", pod(container("a", {"cpu": "2"}), init=(container("i", {"cpu": "1"}),)), {"cpu": 2000}),
        ("a sidecar adds to the containers", pod(container("a", {"cpu": "1"}), init=(sidecar(cpu="500m"),)), {"cpu": 1500}),
        ("an init container after a sidecar runs beside it", pod(container("a", {"cpu": "1"}), init=(sidecar(cpu="500m"), container("i", {"cpu": "2"}))), {"cpu": 2500}),
        ("an init container before a sidecar runs alone", pod(container("a", {"cpu": "1"}), init=(container("i", {"cpu": "2"}), sidecar(cpu="500m"))), {"cpu": 2000}),
        ("overhead comes on top", pod(container("a", {"cpu": "1"}), overhead={"cpu": "250m", "memory": "1Mi"}), {"cpu": 1250, "memory": MI}),
        ("pod-level requests replace the sum", pod(container("a", {"cpu": "1", "ephemeral-storage": "5"}), resources={"requests": {"cpu": "3"}}), {"cpu": 3000, "ephemeral-storage": 5}),
        ("pod-level requests leave what they do not name", pod(container("a", {"memory": "7Mi"}), resources={"requests": {"cpu": "3"}}), {"cpu": 3000, "memory": 7 * MI}),
        ("pod-level extended resources mean nothing", pod(container("a", {"x.io/d": "1"}), resources={"requests": {"x.io/d": "9"}}), {"x.io/d": 1}),
        (
            "a resize counts the largest of wanted, promised and used",
            pod(container("a", {"cpu": "1"}), status={"containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}}]}),
            {"cpu": 3000},
        ),
        (
            "an infeasible resize does not count its wish",
            pod(
                container("a", {"cpu": "9"}),
                status={
                    "conditions": [{"type": "PodResizePending", "reason": "Infeasible", "status": "True"}],
                    "containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}],
                },
            ),
            {"cpu": 2000},
        ),
        (
            "the largest of the sums, not the sum of the largest",
            pod(
                container("a", {"cpu": "1"}),
                container("b", {"cpu": "3"}),
                status={"containerStatuses": [
                    {"name": "a", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "3"}},
                    {"name": "b", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}},
                ]},
            ),
            {"cpu": 4000},
        ),
        (
            "the status of an init container counts",
            pod(container("a"), init=(container("i", {"cpu": "1"}),), status={"initContainerStatuses": [{"name": "i", "resources": {"requests": {"cpu": "5"}}}]}),
            {"cpu": 5000},
        ),
        (
            "the sums in the status of the pod stand for those of its containers",
            pod(container("a", {"cpu": "1"}), status={"resources": {"requests": {"cpu": "6"}}, "allocatedResources": {"cpu": "6"}}),
            {"cpu": 6000},
        ),
        (
            "what the pod was allocated alone does not",
            pod(container("a", {"cpu": "1"}), status={"resources": {}, "allocatedResources": {"cpu": "6"}}),
            {"cpu": 1000},
        ),
        (
            "a pod-level resize in progress",
            pod(container("a"), resources={"requests": {"cpu": "1"}}, status={"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "1"}}),
            {"cpu": 2000},
        ),
    ],
)  # fmt: skip
def test_requests(case: str, subject: Pod, expected: dict[str, int]) -> None:
    assert requests(subject) == expected, case
    if not requests_by_status(subject):
        assert requests(replace(subject, status=PodStatus())) == expected, case


def test_the_status_of_a_pod_that_runs_as_its_spec_says_does_not_matter() -> None:
    def running(cpu: str, **more: Any) -> Pod:
        status = {"name": "a", "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
        return pod(container("a", {"cpu": "1"}), status={"containerStatuses": [status], **more})

    infeasible = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    assert not requests_by_status(pod(container("a", {"cpu": "1"})))
    assert not requests_by_status(running("1"))
    assert requests_by_status(running("2"))
    assert requests_by_status(running("1", conditions=[infeasible]))


@pytest.mark.parametrize(
    ("case", "subject", "expected"),
    [
        (
            "the sum of the largest",
            pod(
                container("a", {"cpu": "1"}),
                container("b", {"cpu": "3"}),
                status={"containerStatuses": [
                    {"name": "a", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "3"}},
                    {"name": "b", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}},
                ]},
            ),
            {"cpu": 6000},
        ),
        (
            "the status of an ordinary init container is not looked at",
            pod(container("a"), init=(container("i", {"cpu": "1"}),), status={"initContainerStatuses": [{"name": "i", "resources": {"requests": {"cpu": "5"}}}]}),
            {"cpu": 1000},
        ),
        (
            "nor is that of a pod without pod-level resources",
            pod(container("a", {"cpu": "1"}), status={"resources": {"requests": {"cpu": "6"}}, "allocatedResources": {"cpu": "6"}}),
            {"cpu": 1000},
        ),
    ],
)  # fmt: skip
def test_requests_in_1_36(case: str, subject: Pod, expected: dict[str, int]) -> None:
    assert requests(subject, KubernetesVersion.V1_36) == expected, case


def test_overhead_raises_only_limits_that_exist() -> None:
    subject = pod(container("a", limits={"cpu": "1"}), overhead={"cpu": "250m", "memory": "1Mi"})
    assert limits(subject) == {"cpu": 1250}


def test_limits_of_the_pod_replace_those_of_its_containers() -> None:
    subject = pod(container("a", limits={"cpu": "1", "memory": "1Mi"}), resources={"limits": {"cpu": "3"}})
    assert limits(subject) == {"cpu": 3000, "memory": MI}


@pytest.mark.parametrize(
    ("case", "subject", "expected"),
    [
        ("each silent container is assumed to need some", pod(container("a"), container("b")), (200, 400 * MI)),
        ("a written zero stays zero", pod(container("a", {"cpu": "0", "memory": "0"})), (0, 0)),
        ("half said, half assumed", pod(container("a", {"cpu": "1"})), (1000, 200 * MI)),
        ("pod-level requests cover the containers", pod(container("a"), resources={"requests": {"cpu": "1", "memory": "1Mi"}}), (1000, MI)),
        ("pod-level cpu alone leaves memory assumed", pod(container("a"), resources={"requests": {"cpu": "1"}}), (1000, 200 * MI)),
    ],
)  # fmt: skip
def test_requests_for_scoring(case: str, subject: Pod, expected: tuple[int, int]) -> None:
    assert nonzero_requests(subject) == expected, case


BOTH = {"cpu": "1", "memory": "1Mi"}


@pytest.mark.parametrize(
    ("case", "subject", "expected"),
    [
        ("nothing asked", pod(container()), "BestEffort"),
        ("only a device", pod(container("a", {"x.io/d": "1"}, {"x.io/d": "1"})), "BestEffort"),
        ("zero is nothing", pod(container("a", {"cpu": "0"})), "BestEffort"),
        ("requests equal limits in every container", pod(container("a", BOTH, BOTH)), "Guaranteed"),
        ("equal in other words", pod(container("a", {"cpu": "1000m", "memory": "1Mi"}, BOTH)), "Guaranteed"),
        ("one container without limits", pod(container("a", BOTH, BOTH), container("b")), "Burstable"),
        ("an init container counts too", pod(container("a", BOTH, BOTH), init=(container("i", BOTH),)), "Burstable"),
        ("limits without memory", pod(container("a", {"cpu": "1"}, {"cpu": "1"})), "Burstable"),
        ("pod level decides alone", pod(container("a"), resources={"requests": BOTH, "limits": BOTH}), "Guaranteed"),
        ("pod level without memory", pod(container("a", BOTH, BOTH), resources={"limits": {"cpu": "1"}}), "Burstable"),
    ],
)
def test_qos_class(case: str, subject: Pod, expected: str) -> None:
    assert qos_class(subject) == expected, case


def test_quota_sees_exact_amounts() -> None:
    assert requests_nano(pod(container("a", {"cpu": "100u"}))) == {"cpu": 100_000}
