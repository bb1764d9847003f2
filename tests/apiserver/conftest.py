from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.apiserver.running import Api, serving


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The administrator of a server that all tests of a worker share; each test uses a namespace of its own."""
    with serving(tmp_path_factory.mktemp("apiserver")) as served:
        yield served


@pytest.fixture
def namespace(api: Api) -> str:
    return api.namespace()


@pytest.fixture
def base(namespace: str) -> str:
    """The path of the namespace in the core group."""
    return f"/api/v1/namespaces/{namespace}"
