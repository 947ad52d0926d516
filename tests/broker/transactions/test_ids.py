"""Transactional ids when a coordinator begins with them, and when nobody uses them any more."""

import asyncio
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.coordination.internal_log import TRANSACTIONS_TOPIC
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.limits import TRANSACTIONAL_ID_EXPIRATION_MS
from broker.transactions.model import InitAsk
from broker.wire.errors import ErrorCode
from tests.broker.clock import ManualClock
from tests.broker.coordinator_host import Host, start, turns
from tests.broker.log.support import FaultyDisk


async def init(host: Host, transactional_id: str = "farshore-link") -> None:
    error, _ = await host.transactions.init_producer_id(InitAsk(transactional_id, 60_000, 900_000))
    assert error is ErrorCode.NONE


@pytest.mark.parametrize("per_turn", [1, 2, 1000])
async def test_others_have_their_turns_while_it_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_turn: int
) -> None:
    monkeypatch.setattr("broker.transactions.coordinator.COORDINATOR_LOAD_RECORDS_PER_TURN", per_turn)
    host = start(tmp_path)
    for number in range(5):
        await init(host, f"link-{number}")
    loaded = TransactionCoordinator(host, host.transactions.log, host.markers)
    assert turns(loaded.load()) == 2 * (5 // per_turn), "of the records, and of the ids"
    assert loaded.transactions.keys() == host.transactions.transactions.keys()
    host.close()


async def test_the_timer_forgets_unused_ids_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.transactions.coordinator.TRANSACTIONAL_ID_CHECK_MS", 1)
    clock = ManualClock()
    host = start(tmp_path, clock)
    await init(host)
    forgotten = asyncio.Event()
    host.log(TRANSACTIONS_TOPIC).append_listeners.append(forgotten.set)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        timer = tasks.create_task(host.transactions.run())
        await asyncio.sleep(0)  # the timer runs up to where it waits
        clock.advance(TRANSACTIONAL_ID_EXPIRATION_MS + 1)
        await forgotten.wait()
        timer.cancel()
    assert host.transactions.transactions == {}
    host.close()


async def test_an_unused_transactional_id_is_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    host = start(tmp_path, clock)
    host.create_topic("flights")
    await init(host)
    clock.advance(TRANSACTIONAL_ID_EXPIRATION_MS)
    host.transactions.expire_ids()
    assert "farshore-link" in host.transactions.transactions
    clock.advance(1)
    host.transactions.expire_ids()
    assert host.restart().transactions.transactions == {}


async def test_an_id_that_cannot_be_expired_is_named_and_kept_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk, clock = FaultyDisk(), ManualClock()
    host = Host(tmp_path / "data", clock, BrokerConfig(tmp_path / "data"), disk)
    await init(host)
    clock.advance(TRANSACTIONAL_ID_EXPIRATION_MS + 1)
    disk.room_bytes = 0
    host.transactions.expire_ids()
    assert "farshore-link" in host.transactions.transactions
    assert "transactional id farshore-link could not be expired" in caplog.text
    disk.room_bytes = None
    host.transactions.expire_ids()
    assert host.transactions.transactions == {}
