"""Which tolerations match which taints, as ToleratesTaint of k8s.io/api/core/v1."""

from __future__ import annotations

import pytest

from wharfinger.api.taints import any_tolerates, has_untolerated_taint, tolerates
from wharfinger.api.views.nodes import Taint
from wharfinger.api.views.pods import Toleration

TAINT = Taint(key="pool", value="5", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param(Toleration(key="pool", value="5"), True, id="the operator is Equal by default"),
        pytest.param(Toleration(key="pool", operator="Equal", value="6"), False, id="another value"),
        pytest.param(Toleration(key="pool", operator="Exists"), True, id="any value"),
        pytest.param(Toleration(operator="Exists"), True, id="any key"),
        pytest.param(Toleration(key="other", operator="Exists"), False, id="another key"),
        pytest.param(Toleration(operator="Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(Toleration(value="5"), True, id="an empty key matches every key"),
        pytest.param(Toleration(key="pool", operator="Gt", value="1"), False, id="Gt is behind a feature gate"),
        pytest.param(Toleration(key="pool", operator="Lt", value="9"), False, id="Lt is behind a feature gate"),
    ],
)
def test_tolerates(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected
    assert any_tolerates((Toleration(key="other"), toleration), TAINT) is expected
    assert has_untolerated_taint((toleration,), (TAINT,)) is not expected


def test_only_taints_of_the_given_effects_count() -> None:
    preferred = Taint(key="pool", effect="PreferNoSchedule")
    assert not has_untolerated_taint((), (preferred,))
    assert has_untolerated_taint((), (preferred,), ("PreferNoSchedule",))
    assert not has_untolerated_taint((), (TAINT,), ("NoExecute",))
