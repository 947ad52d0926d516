"""Requests that wait for an answer which another request, or the timer, will bring."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

R = TypeVar("R")


class Waiters(Generic[R]):
    """By group and member. A member that asked twice (its client gave up once) gets the answer on both."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], list[asyncio.Future[R]]] = {}

    @contextmanager
    def waiting(self, group_id: str, member_id: str) -> Iterator[asyncio.Future[R]]:
        """The answer to come; forgotten again when the request ends, however it does."""
        key = (group_id, member_id)
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(answer)
        try:
            yield answer
        finally:
            left = [other for other in self._waiting.get(key, []) if other is not answer]
            if left:
                self._waiting[key] = left
            else:
                self._waiting.pop(key, None)

    def answer(self, group_id: str, member_id: str, result: R) -> None:
        for waiting in self._waiting.pop((group_id, member_id), []):
            if not waiting.done():
                waiting.set_result(result)
