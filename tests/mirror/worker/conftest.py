"""Two sites of farshore's own brokers, each a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.servers import FarshoreBroker


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Bootstrap servers of east and west; tests use topics of their own."""
    with (
        FarshoreBroker(tmp_path_factory.mktemp("east")) as east,
        FarshoreBroker(tmp_path_factory.mktemp("west")) as west,
    ):
        yield east.bootstrap, west.bootstrap
