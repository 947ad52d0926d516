"""Requests that wait for an answer which another request, or the timer, will bring."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
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

    def answer_all(self, result_of: Callable[[str], R]) -> None:
        """`result_of` gives the answer to a member."""
        for group_id, member_id in list(self._waiting):
            self.answer(group_id, member_id, result_of(member_id))
