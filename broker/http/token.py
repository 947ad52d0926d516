"""A token as it stands now, read seldom and by one at a time: it may be what a program prints."""

from __future__ import annotations

import asyncio
import logging
from math import inf

from broker.base.clock import Clock
from broker.client.errors import SecretUnreadable
from broker.client.security.settings import Secret
from broker.http.limits import TOKEN_KEPT_MS

log = logging.getLogger(__name__)


class Token:
    def __init__(self, secret: Secret, clock: Clock) -> None:
        self._secret, self._clock = secret, clock
        self._turn = asyncio.Lock()
        self._value = ""
        self._read_s = -inf
        self._is_old = False

    async def begin(self) -> None:
        """Raises SecretUnreadable."""
        self._value = await asyncio.to_thread(self._secret.read)
        self._read_s = self._clock.monotonic()

    async def current(self) -> str:
        """One that cannot be read keeps what there was, and is told once."""
        async with self._turn:
            if (self._clock.monotonic() - self._read_s) * 1000 >= TOKEN_KEPT_MS:
                try:
                    await self.begin()
                except SecretUnreadable as error:
                    if not self._is_old:
                        log.warning("the token of the metrics: %s; the one before goes on", error)
                    self._is_old, self._read_s = True, self._clock.monotonic()
                else:
                    self._is_old = False
            return self._value
