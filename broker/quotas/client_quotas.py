"""The quotas that hold here, and how much of them was used: each broker counts for itself, as in Kafka."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from math import inf
from typing import Any, Final

from broker.access.acls import host_of
from broker.access.entities import CLIENT_ID, IP, USER, entity_of, path_of
from broker.base.clock import Clock, steady_ms
from broker.limits import QUOTA_RATES_MAX, THROTTLED_TOLD_MS
from broker.quotas.precedence import kept_name, limit_of, limit_of_address
from broker.quotas.settings import QuotaKey, quotas_in
from broker.quotas.windows import KEPT_MS, WINDOW_MS, WINDOWS, Rate
from broker.wire.api import ApiKey

log = logging.getLogger(__name__)

_ALL_OF_A_THREAD: Final = 100.0
"""Percent of the event loop, which is the one thread that requests are handled in."""

_REST_MS_MAX: Final = 2**31 - 1


class ClientQuotas:
    """`is_any`: whether anything is limited for any client. Where nothing is, nothing is counted."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.limits: dict[QuotaKey, dict[str, float]] = {key: {} for key in QuotaKey}
        self.is_any = False
        # In the order of their last use.
        self._rates: dict[tuple[str, ...], tuple[Rate, float]] = {}
        self._told_ms = -inf
        self.throttles: dict[QuotaKey, tuple[int, float]] = {}
        """How often each quota held somebody back, and for how long in all, in ms."""

    def take(self, changed: Mapping[str, Mapping[str, str]]) -> None:
        """What is set on users, clients and addresses now, by ConfigResource.path."""
        for written, values in changed.items():
            path, found = _one_way(written), quotas_in(values)
            for key, limits in self.limits.items():
                limits.pop(path, None)
                if key in found:
                    limits[path] = found[key]
        limiting = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
        self.is_any = any(self.limits[key] for key in limiting)

    def of(self, principal: str, client_id: str | None) -> ClientQuota:
        return ClientQuota(self, kept_name(principal.partition(":")[2]), kept_name(client_id or ""))

    def rate(self, *of: str) -> Rate:
        """Of those who share it. One that is forgotten begins anew: a client that nobody heard of for long, or of many
        that make up names.
        """
        now_ms = steady_ms(self.clock)
        rate, _ = self._rates.pop(of, (Rate(), now_ms))
        self._rates[of] = rate, now_ms
        while len(self._rates) > QUOTA_RATES_MAX or now_ms - next(iter(self._rates.values()))[1] > KEPT_MS:
            del self._rates[next(iter(self._rates))]
        return rate

    def rest_of_address_ms(self, address: str) -> float:
        """How long a connection from there is to wait for its end; 0: it may stay, and counts."""
        limits = self.limits[QuotaKey.CONNECTION_CREATION_RATE]
        if not limits:
            return 0.0
        address = host_of(address)
        limit = limit_of_address(limits, address)
        if limit is None:
            return 0.0
        rate, now_ms = self.rate(QuotaKey.CONNECTION_CREATION_RATE, address), steady_ms(self.clock)
        rate.note(1, now_ms)
        if rest_ms := min(rate.rest_ms(limit, now_ms), WINDOW_MS):
            rate.note(-1, now_ms)
            self.note(QuotaKey.CONNECTION_CREATION_RATE, rest_ms, f"connections from {address}")
        return rest_ms

    def note(self, key: QuotaKey, rest_ms: float, who: str) -> None:
        """It is told, but not each time: who is held back is held back again and again."""
        count, held_ms = self.throttles.get(key, (0, 0.0))
        self.throttles[key] = (count + 1, held_ms + rest_ms)
        now_ms = steady_ms(self.clock)
        if now_ms - self._told_ms >= THROTTLED_TOLD_MS:
            self._told_ms = now_ms
            log.info(
                "clients are held back by their quotas: %s, %s (said once in %d s)", who, key, THROTTLED_TOLD_MS // 1000
            )


def _one_way(path: str) -> str:
    """An address may be written in several; sockets have one. Of long names there is what is kept of them."""
    written = {IP: host_of, USER: kept_name, CLIENT_ID: kept_name}
    return path_of({kind: name if name is None else written[kind](name) for kind, name in entity_of(path).items()})


class ClientQuota:
    """What one request of a client uses of its quotas."""

    __slots__ = ("_client_id", "_quotas", "_spent_s", "_user")

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str) -> None:
        self._quotas, self._user, self._client_id = quotas, user, client_id
        self._spent_s = 0.0

    async def timed(self, work: Awaitable[Any]) -> Any:
        """What `work` gives. Only its steps are counted, not what it waits for."""
        return await _Timed(self, work) if self._quotas.limits[QuotaKey.REQUEST_PERCENTAGE] else await work

    @property
    def now_s(self) -> Callable[[], float]:
        return self._quotas.clock.monotonic

    def spend(self, seconds: float) -> None:
        self._spent_s += seconds

    @property
    def fetch_bytes_max(self) -> float:
        """More at once would be too fast whatever went before."""
        limit = limit_of(self._quotas.limits[QuotaKey.CONSUMER_BYTE_RATE], self._user, self._client_id)
        return inf if limit is None else limit.value * (WINDOWS - 1) * WINDOW_MS / 1000

    def fetched(self, size_bytes: int) -> int:
        """How long the client is to rest before it gets so many bytes of records, in ms; 0: it gets them now.

        A batch that is larger than all that it may get in the windows passes where it is the first: Kafka's consumers
        wait for such a one for ever.
        """
        limit = limit_of(self._quotas.limits[QuotaKey.CONSUMER_BYTE_RATE], self._user, self._client_id)
        if limit is None:
            return 0
        now_ms = steady_ms(self._quotas.clock)
        rate = self._quotas.rate(QuotaKey.CONSUMER_BYTE_RATE, limit.user, limit.client_id)
        was_idle = rate.measure(now_ms)[0] <= 0
        rate.note(size_bytes, now_ms)
        rest_ms = min(round(rate.rest_ms(limit.value, now_ms)), _REST_MS_MAX)
        if not rest_ms or was_idle:
            return 0
        rate.note(-size_bytes, now_ms)
        self._note(QuotaKey.CONSUMER_BYTE_RATE, rest_ms)
        return rest_ms

    def answered(self, api_key: int, size_bytes: int, response: Any) -> int:
        """How long the client is to rest behind a request of so many bytes, in ms, which its answer says, too."""
        rest_ms = getattr(response, "throttle_time_ms", 0) if api_key == ApiKey.FETCH else 0
        if api_key == ApiKey.PRODUCE:
            rest_ms = max(rest_ms, round(self._noted(QuotaKey.PRODUCER_BYTE_RATE, size_bytes)))
        spent = self._noted(QuotaKey.REQUEST_PERCENTAGE, self._spent_s * _ALL_OF_A_THREAD)
        rest_ms = min(max(rest_ms, round(spent)), _REST_MS_MAX)
        if rest_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = rest_ms
        return rest_ms

    def _noted(self, key: QuotaKey, amount: float) -> float:
        limits = self._quotas.limits[key]
        limit = limit_of(limits, self._user, self._client_id) if limits else None
        if limit is None:
            return 0.0
        now_ms = steady_ms(self._quotas.clock)
        rate = self._quotas.rate(key, limit.user, limit.client_id)
        rate.note(amount, now_ms)
        rest_ms = rate.rest_ms(limit.value, now_ms)
        if key is QuotaKey.REQUEST_PERCENTAGE:
            rest_ms = min(rest_ms, WINDOW_MS)
        if rest_ms:
            self._note(key, rest_ms)
        return rest_ms

    def _note(self, key: QuotaKey, rest_ms: float) -> None:
        self._quotas.note(key, rest_ms, f"user {self._user}, client id {self._client_id!r}")


class _Timed:
    """An awaitable whose steps are timed."""

    def __init__(self, quota: ClientQuota, work: Awaitable[Any]) -> None:
        self._quota, self._work = quota, work

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, now_s = self._work.__await__(), self._quota.now_s
        sent: Any = None
        raised: BaseException | None = None
        while True:
            began_s = now_s()
            try:
                waited_for = steps.send(sent) if raised is None else steps.throw(raised)
            except StopIteration as end:
                return end.value
            finally:
                self._quota.spend(now_s() - began_s)
            sent = raised = None
            try:
                sent = yield waited_for
            except BaseException as error:  # noqa: BLE001 - whatever it is, the work is told
                raised = error
