from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.systems.placement.hub import Hub, binding, cluster


@pytest.fixture
def hub() -> Iterator[Hub]:
    """One set bound to ns1, with the clusters c1, c2 and c3."""
    with Hub() as made:
        made.apply(binding(), *(cluster(name) for name in ("c1", "c2", "c3")))
        yield made
