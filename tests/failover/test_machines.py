"""The harness that kills machines: what it makes of a request is no more than what a network could."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable
from typing import Any, cast

import pytest

from broker.client.connection import Connection
from broker.client.errors import ConnectionLost
from broker.wire.messages.list_groups import ListGroupsRequest
from tests.failover.machines import Death, Died


class Line:
    def __init__(self) -> None:
        self.aborted: list[Exception] = []

    def abort(self, error: Exception) -> None:
        self.aborted.append(error)


async def _answered() -> Awaitable[Any]:
    answer = asyncio.get_running_loop().create_future()
    answer.set_result("an answer")
    return answer


@pytest.mark.parametrize(("is_last", "error"), [(False, ConnectionLost), (True, Died)])
async def test_an_answer_that_never_comes_need_not_be_awaited(is_last: bool, error: type[BaseException]) -> None:
    """It was a coroutine: where several requests were sent and the first failed, Python warned that it never ran."""
    line, cuts = Line(), iter([False, True] * 2)
    death = Death(at=0, cuts=lambda: next(cuts))
    if is_last:
        death = Death(at=2, answered=True)
        await death.send(cast("Connection", line), ListGroupsRequest(), _answered)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        answer = await death.send(cast("Connection", line), ListGroupsRequest(), _answered)
        if not is_last:
            await death.send(cast("Connection", line), ListGroupsRequest(), _answered)  # left alone
            gc.collect()
        with pytest.raises(error):
            await answer
    assert warned == []
    assert (len(line.aborted), death.is_dead) == ((0, True) if is_last else (1, False))
