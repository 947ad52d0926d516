"""An open transaction holds up a drain although nobody writes: it is said where it is, and how it is ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from failover.errors import NotDrained, TransactionOpen
from failover.limits import QUIET_S
from failover.losses.statements import Certainty
from failover.observing.open_transactions import Holding
from failover.planning.plan import plan_failover, plan_switchover
from tests.failover.stage import PARTITIONS, RECORDS, mirrored, two_sites
from tests.mirror.harness import some_records, write
from tests.mirror.transactions import begin

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


@pytest.mark.parametrize("is_stalled", [False, True], ids=["mirror at the transaction", "mirror behind it"])
async def test_a_failover_counts_up_to_the_transaction_and_states_the_rest_apart(
    tmp_path: Path, is_stalled: bool
) -> None:
    """All behind the mirror was stated as lost offsets, of none of which anybody counted a record."""
    committed = 4 if is_stalled else 0
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        for number in range(committed):
            await write(stage.source, AT, some_records(5_000 + number, 1))
        await begin(stage.source, AT)
        await write(stage.source, AT, some_records(6_000, 7))
        end = (await log_end_offsets(stage.source, [AT]))[AT]
        plan = plan_failover(await stage.sites.look_past_source(), allow_data_loss=True, even_if_source_answers=True)
        result = await stage.run(plan, stage.sites)
    (stated,) = [loss for loss in result.losses if loss.partition == AT.partition]
    assert (stated.certainty, stated.records, stated.offsets) == (Certainty.AT_LEAST, committed, committed)
    assert (stated.end_offset, stated.open_offsets) == (RECORDS + committed, end - RECORDS - committed)
    assert (result.loss.records, result.loss.open_offsets) == (committed, stated.open_offsets)
    assert not stated.is_none


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
