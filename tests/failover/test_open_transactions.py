"""An open transaction holds up a drain although nobody writes: it is said where it is, and how it is ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from failover.errors import NotDrained, TransactionOpen
from failover.limits import QUIET_S
from failover.open_transactions import Holding
from failover.plan import plan_switchover
from tests.failover.stage import PARTITIONS, RECORDS, mirrored, two_sites

AT = TopicPartition("flights", 1)
EAST = Site("east", "east:9092")


async def test_a_switchover_that_waits_for_a_transaction_says_so(tmp_path: Path) -> None:
    """It told people who had stopped all producers to stop them."""
    async with two_sites(tmp_path) as stage, mirrored(stage):
        producer = AIOKafkaProducer(bootstrap_servers=stage.source.site.bootstrap_servers, transactional_id="t")
        await producer.start()
        try:
            await producer.begin_transaction()
            await producer.send_and_wait(AT.topic, b"idle", partition=AT.partition)
            with pytest.raises(TransactionOpen) as refused:
                await stage.run(plan_switchover(await stage.sites.look()), stage.sites, drain_timeout_s=QUIET_S + 3)
            assert f"flights-1 from offset {RECORDS} on" in str(refused.value)
            tool = f"kafka-transactions.sh --bootstrap-server {stage.link.source.bootstrap_servers}"
            assert f"{tool} abort --topic flights --partition 1 --start-offset {RECORDS}" in refused.value.hint
            await producer.abort_transaction()
        finally:
            await producer.stop()
        result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites)
        assert result.verified, result.differences


def test_one_that_timed_out_is_told_and_short_ones_are_writers() -> None:
    holding = Holding()
    for number in range(20):
        holding.note({AT: RECORDS + number}, number * QUIET_S / 2)
    assert holding.error(EAST, 60.0) is None
    holding.note({AT: 7, PARTITIONS[0]: 5}, 100.0)
    holding.note({AT: 7}, 100.0 + QUIET_S)
    holding.note({}, 101.0 + QUIET_S)
    error = holding.error(EAST, 60.0)
    assert isinstance(error, NotDrained)
    assert "flights-1 from offset 7 on" in str(error)
    assert "flights-0" not in str(error)
