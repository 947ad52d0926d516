"""A failback waits for what the link back brings, and says what holds that up."""

from __future__ import annotations

from pathlib import Path

import pytest

from failover.errors import TransactionOpen
from failover.failback.carrying import await_carried
from failover.limits import QUIET_S
from tests.failover.failback.returning import ready
from tests.failover.failback.stage import transaction
from tests.failover.stage import PARTITIONS
from tests.mirror.harness import read_all


async def test_a_transaction_that_holds_the_link_back_up_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that offsets were missing, and asked whether the link is run, which it was."""
    at = PARTITIONS[1]
    async with ready(tmp_path, monkeypatch) as lost:
        source, target = lost.stage.target, lost.stage.source
        async with transaction(source.site.bootstrap_servers) as producer:
            await producer.send_and_wait(at.topic, b"open", partition=at.partition)
            with pytest.raises(TransactionOpen) as refused:
                await await_carried(lost.back, source, target, QUIET_S + 2, lambda _left, _there: None)
            start = (await read_all(source, at))[-1].offset
            await producer.abort_transaction()
        await await_carried(lost.back, source, target, 20.0, lambda _left, _there: None)
    assert f"flights-1 from offset {start} on" in str(refused.value)
    assert "nothing was changed" not in str(refused.value), "the failback's first steps are done"
    tool = f"kafka-transactions.sh --bootstrap-server {source.site.bootstrap_servers}"
    assert f"{tool} abort --topic flights --partition 1 --start-offset {start}" in refused.value.hint
