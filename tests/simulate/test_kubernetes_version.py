"""Which version of Kubernetes is followed: as configured, as the server says, as the snapshot says."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from wharfinger.api.configuration import BadConfiguration, load_configuration
from wharfinger.api.kinds import registry
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion, version_of_server
from wharfinger.scheduler import profiles
from wharfinger.simulate.inputs import read_inputs

HEADER = {"apiVersion": "wharfinger.dev/v1alpha1", "kind": "Snapshot", "time": "2026-01-01T00:00:00Z"}
CONFIGURATION = {"apiVersion": "wharfinger.dev/v1alpha1", "kind": "WharfingerConfiguration"}


@pytest.mark.parametrize(
    ("answer", "followed"),
    [
        ({"major": "1", "minor": "37"}, KubernetesVersion.V1_37),
        ({"major": "1", "minor": "36+"}, KubernetesVersion.V1_36),
        ({"major": "1", "minor": "31"}, KubernetesVersion.V1_36),
        ({"major": "1", "minor": "40"}, KubernetesVersion.V1_37),
        ({"major": "", "minor": ""}, REFERENCE),
        ({}, REFERENCE),
    ],
)
def test_the_nearest_version_to_that_of_the_server_is_followed(
    answer: dict[str, object], followed: KubernetesVersion
) -> None:
    assert version_of_server(answer) is followed


@pytest.mark.parametrize("kubernetes", KubernetesVersion)
def test_the_configuration_names_the_version(kubernetes: KubernetesVersion) -> None:
    settings = load_configuration({**CONFIGURATION, "kubernetesVersion": str(kubernetes)})
    loaded = profiles.load(settings.scheduler, settings=settings)
    first = "NodeName" if kubernetes >= KubernetesVersion.V1_37 else "NodeUnschedulable"
    assert loaded.kubernetes is kubernetes and loaded.profiles[0].points["filter"][0] == first


def test_other_versions_are_refused() -> None:
    with pytest.raises(BadConfiguration) as refused:
        load_configuration({**CONFIGURATION, "kubernetesVersion": "1.35"})
    assert str(refused.value) == ('kubernetesVersion: Unsupported value: "1.35": supported values: "1.36", "1.37"')


@pytest.mark.parametrize(
    ("documents", "followed"),
    [
        ([{**HEADER, "kubernetesVersion": "1.36"}], KubernetesVersion.V1_36),
        ([{**HEADER, "kubernetesVersion": "1.36"}, {**CONFIGURATION, "kubernetesVersion": "1.37"}], REFERENCE),
        ([HEADER], None),
    ],
)
def test_a_snapshot_knows_the_version_of_its_cluster(
    documents: list[dict[str, Any]], followed: KubernetesVersion | None
) -> None:
    inputs = read_inputs([("a.yaml", yaml.safe_dump_all(documents))], registry())
    assert inputs.configuration.kubernetes is followed
