"""Changes of a store that has one place to write to: one after the other, each to its end."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from broker.base.ending import to_its_end


class HasTurn(Protocol):
    turn: asyncio.Lock


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=HasTurn)


def in_turn(
    change: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Whoever gives up waiting for a change that was begun does not undo it."""

    @functools.wraps(change)
    async def in_its_turn(store: S, /, *arguments: P.args, **named: P.kwargs) -> R:
        async with store.turn:
            return await to_its_end(change(store, *arguments, **named))

    return in_its_turn
