"""What is counted, for whom, and what is forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from broker.limits import QUOTA_RATES_MAX
from broker.quotas.client_quotas import ClientQuotas
from broker.quotas.precedence import NAME_CHARACTERS_KEPT
from broker.quotas.settings import QuotaKey
from broker.wire.api import ApiKey
from broker.wire.messages.metadata import MetadataResponse
from broker.wire.messages.produce import ProduceResponse
from tests.broker.clock import ManualClock

BYTES, READ, SPENT, CONNECTED = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONNECTION_CREATION_RATE,
)
SHOP = "User:shop"


def quotas_of(set_on: Mapping[str, Mapping[str, str]]) -> tuple[ClientQuotas, ManualClock]:
    clock = ManualClock()
    quotas = ClientQuotas(clock)
    quotas.take(set_on)
    return quotas, clock


def produced(quotas: ClientQuotas, size_bytes: int, principal: str = SHOP, client_id: str = "app") -> int:
    response = ProduceResponse()
    rest_ms = quotas.of(principal, client_id).answered(ApiKey.PRODUCE, size_bytes, response)
    assert response.throttle_time_ms == rest_ms
    return rest_ms


async def test_what_is_set_holds_at_once_and_until_it_is_taken_away() -> None:
    quotas, _ = quotas_of({})
    assert not quotas.is_any
    quotas.take({"users/shop": {BYTES: "1000", "SCRAM-SHA-256": "x"}, "ips/::1": {CONNECTED: "1"}})
    assert quotas.is_any
    assert produced(quotas, 12_000) == 2000
    assert quotas.of(SHOP, "app").answered(ApiKey.METADATA, 12_000, MetadataResponse()) == 0
    assert produced(quotas, 0, "User:other") == 0
    quotas.take({"users/shop": {BYTES: "100"}})
    assert produced(quotas, 0) == 110_000
    quotas.take({"users/shop": {BYTES: "nonsense"}, "clients/app": {BYTES: "-1"}})
    assert not quotas.is_any
    quotas.take({"users/shop": {}})
    assert produced(quotas, 10**9) == 0


async def test_a_user_shares_his_quota_and_a_client_id_its_own() -> None:
    quotas, _ = quotas_of({"users/<default>": {BYTES: "1000"}})
    assert produced(quotas, 12_000, client_id="one") == 2000
    assert produced(quotas, 0, client_id="two") == 2000
    assert produced(quotas, 0, "User:other") == 0
    quotas, _ = quotas_of({"clients/app": {BYTES: "1000"}})
    assert produced(quotas, 12_000, SHOP) == 2000
    assert produced(quotas, 0, "User:other") == 2000
    quotas, _ = quotas_of({"users/shop/clients/<default>": {BYTES: "1000"}})
    assert produced(quotas, 12_000, client_id="one") == 2000
    assert produced(quotas, 0, client_id="two") == 0


async def test_a_rest_has_room_in_its_field() -> None:
    quotas, _ = quotas_of({"users/shop": {BYTES: "1"}})
    assert produced(quotas, 10**9) == 2**31 - 1


async def test_what_is_not_given_is_not_counted() -> None:
    quotas, clock = quotas_of({"users/shop": {READ: "1000"}})
    shop = quotas.of(SHOP, "app")
    assert shop.fetch_bytes_max == 10_000
    assert shop.fetched(9_000) == 0
    assert shop.fetched(3_000) == 2000
    assert shop.fetched(1_000) == 0
    clock.advance(12_000)
    assert shop.fetched(50_000) == 0, "one batch that is too large passes where it is the first"
    assert shop.fetched(1) > 0


async def test_only_the_steps_of_a_request_are_counted() -> None:
    quotas, clock = quotas_of({"users/shop": {SPENT: "50"}})
    waited = asyncio.Event()

    async def work(busy_s: float) -> str:
        clock.advance(int(busy_s * 1000))
        await waited.wait()
        clock.advance(int(busy_s * 1000))
        return "done"

    async def spent(busy_s: float) -> int:
        quota = quotas.of(SHOP, "app")
        task = asyncio.ensure_future(quota.timed(work(busy_s)))
        await asyncio.sleep(0)
        clock.advance(100_000)
        waited.set()
        assert await task == "done"
        return quota.answered(ApiKey.METADATA, 10, MetadataResponse())

    assert await spent(2.4) == 0
    assert await spent(10.0) == 1000, "a second at most"
    with pytest.raises(ZeroDivisionError):
        await quotas.of(SHOP, "app").timed(failing())


async def failing() -> None:
    await asyncio.sleep(0)
    raise ZeroDivisionError


async def test_connections_are_counted_by_address_where_they_stay() -> None:
    quotas, _ = quotas_of({"ips/<default>": {CONNECTED: "1"}})
    assert not quotas.is_any, "no request is counted for that"
    assert [quotas.rest_of_address_ms("10.0.0.1") for _ in range(10)] == [0.0] * 10
    assert quotas.rest_of_address_ms("10.0.0.1") == 1000
    assert quotas.rest_of_address_ms("10.0.0.1") == 1000
    assert quotas.rest_of_address_ms("::ffff:10.0.0.1") == 1000
    assert quotas.rest_of_address_ms("10.0.0.2") == 0
    quotas.take({"ips/0%3A0%3A0%3A0%3A0%3A0%3A0%3A1": {CONNECTED: "0.05"}, "ips/<default>": {}})
    assert [quotas.rest_of_address_ms(each) for each in ("10.0.0.1", "::1", "::1")] == [0, 1000, 1000]
    quotas.take({"ips/0%3A0%3A0%3A0%3A0%3A0%3A0%3A1": {}})
    assert quotas.rest_of_address_ms("::1") == 0


async def test_a_long_name_counts_as_any_other_and_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    long, same = "x" * 30_000, "y" * NAME_CHARACTERS_KEPT
    quotas, _ = quotas_of({"clients/<default>": {BYTES: "1000"}, f"users/{long}/clients/{long}": {BYTES: "100"}})
    assert produced(quotas, 12_000, client_id=long) == 2000
    assert produced(quotas, 12_000, client_id=long + "x") == 2000, "another one"
    assert produced(quotas, 12_000, client_id=long) == 14_000
    assert produced(quotas, 12_000, f"User:{long}", long) == 110_000, "what is set on a long name holds for it"
    assert produced(quotas, 12_000, client_id=same) == 2000
    kept = [name for of in quotas._rates for name in of]
    assert same in kept
    assert max(map(len, kept)) == NAME_CHARACTERS_KEPT
    assert max(map(len, caplog.messages)) < 1000
    quotas.take({f"users/{long}/clients/{long}": {}})
    assert produced(quotas, 0, f"User:{long}", long) == 14_000, "and what is set on all holds again"


async def test_who_makes_up_names_is_not_remembered_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    quotas, clock = quotas_of({"clients/<default>": {BYTES: "1000"}})
    for number in range(QUOTA_RATES_MAX + 100):
        produced(quotas, 20_000, client_id=f"client-{number}")
    assert len(quotas._rates) == QUOTA_RATES_MAX
    assert len(caplog.records) == 1, "it is said once in a minute"
    clock.advance(12_000)
    produced(quotas, 1)
    assert len(quotas._rates) == 1
