"""Calls into a library that waits for others and knows no time limit: each in a thread, which is left behind where it
takes too long.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeVar

from broker.base.time_limits import timeout

LEFT_MAX: Final = 16
"""Threads that were left behind, and wait beyond their time: no more are begun meanwhile."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Left:
    thread: threading.Thread
    due_s: float
    """Of the loop's time. Whom others gave up on before may well end by then."""


_left: list[_Left] = []


async def call_within(limit_s: float, call: Callable[[], _Result]) -> _Result:
    """Raises TimeoutError, and what `call` does.

    None of the loop's own threads: those are few, names of hosts are looked up in them, and a command that ends waits
    for each.
    """
    now_s = asyncio.get_running_loop().time()
    _left[:] = [left for left in _left if left.thread.is_alive()]
    if sum(left.due_s <= now_s for left in _left) >= LEFT_MAX:
        raise TimeoutError
    answer: Future[_Result] = Future()
    answer.set_running_or_notify_cancel()  # from here on nobody takes it back: who waits no more does not hear of it
    thread = threading.Thread(target=_answer, args=(answer, call), name="left-behind", daemon=True)
    thread.start()
    try:
        async with timeout(limit_s):
            return await asyncio.wrap_future(answer)
    except (TimeoutError, asyncio.CancelledError):
        _left.append(_Left(thread, now_s + limit_s))
        raise


def _answer(answer: Future[_Result], call: Callable[[], _Result]) -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the answer is waited for
        answer.set_exception(error)
    else:
        answer.set_result(result)
