"""What only the source has is said exactly, held against both logs by content, and stays there where that is wished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.wire.vocabulary import TopicPartition
from deploy.cli.stranded import cut_lines, in_words
from failover.errors import StrandedUnknown, TailEndUnknown
from failover.failback.stranding import (
    count_in,
    leave_at_source,
    look_for_stranded,
    read_stranded,
    resume_settled,
)
from mirror.offsets.entries import GapKind, GapStatus, RunState
from mirror.offsets.operations import promote_link, resume_link
from mirror.offsets.state import read_entries
from tests.failover.failback.stage import Lost, lost_and_back, transaction
from tests.failover.machines import VICTIM, Death, mortal
from tests.failover.stage import PARTITIONS, RECORDS
from tests.mirror.harness import contents, make_topic, read_all, running, some_records, wait_for_records, write

FIRST, SECOND = PARTITIONS


@pytest.mark.parametrize(("seed", "tails"), [(1, (0, 0)), (2, (1, 0)), (3, (37, 1)), (4, (5, 240))])
async def test_stranded_is_the_difference_of_the_logs(tmp_path: Path, seed: int, tails: tuple[int, int]) -> None:
    async with lost_and_back(tmp_path, seed, tails, (3, 0)) as lost:
        found = await lost.stranded()
        assert found.records == sum(tails)
        for where in PARTITIONS:
            assert await lost.listed(where) == await lost.only_at_source(where)
        assert [tail.where for tail in found.behind_newer] == ([FIRST] if tails[0] else [])
        times = [record.timestamp for record in (await read_all(lost.stage.source, FIRST))[RECORDS:]]
        of_first = [tail for tail in found.tails if tail.where == FIRST]
        assert [(tail.first_timestamp_ms, tail.last_timestamp_ms) for tail in of_first] == (
            [(min(times), max(times))] if times else []
        )


async def test_what_was_not_read_in_the_time_is_told_as_that(tmp_path: Path) -> None:
    """Whoever asked read without a limit, and was told nothing until the end."""
    async with lost_and_back(tmp_path, 3, (37, 1), (3, 0)) as lost:
        ends = lost.there, lost.stage.source, lost.stage.target
        whole = await lost.stranded()
        _, cut = await read_stranded(*ends, within_s=0.0)
        assert cut.records is None
        assert [(one.where, one.first_offset, one.end_offset) for one in cut.cut] == [
            (one.where, one.first_offset, one.end_offset) for one in whole.tails
        ]
        assert {(one.records, one.records_at_least, one.read_to == one.first_offset) for one in cut.cut} == {
            (None, 0, True)
        }
        (first, *_) = cut_lines(cut)
        assert f"flights-0 until offset {cut.cut[0].first_offset} of {cut.cut[0].end_offset}" in first
        assert "at least 0 records in 2 ranges" in in_words(cut)
        _, again = await read_stranded(*ends, within_s=60.0)
        assert again == whole
        assert not whole.cut


async def test_aborted_records_and_markers_do_not_count_and_an_open_transaction_is_not_known(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 5, (2, 0), (1, 1)) as lost:
        source = lost.stage.source
        async with transaction(source.site.bootstrap_servers) as producer:
            await producer.send_and_wait(FIRST.topic, b"aborted", partition=0)
            await producer.abort_transaction()
            assert (await lost.stranded()).records == 2
            await producer.begin_transaction()
            await producer.send_and_wait(FIRST.topic, b"open", partition=0)
            found = await lost.stranded()
            assert found.records is None
            with pytest.raises(StrandedUnknown, match="a transaction is open in flights-0") as refused:
                await leave_at_source(lost.there, lost.stage.target, found.undecided, "test")
            start = found.undecided[0].end_offset - 1
            tool = f"kafka-transactions.sh --bootstrap-server {source.site.bootstrap_servers}"
            assert f"flights-0 from offset {start} on" in str(refused.value)
            assert f"{tool} abort --topic flights --partition 0 --start-offset {start}" in refused.value.hint
            await producer.commit_transaction()
        assert (await lost.stranded()).records == 3


async def test_a_transaction_that_ends_while_a_tail_is_read_is_counted_or_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever request it ends before. The tail was counted up to it, and said to be known with its end."""
    async with (
        lost_and_back(tmp_path, 11, (2, 0), (1, 0)) as lost,
        transaction(lost.stage.source.site.bootstrap_servers) as producer,
        Cluster(lost.stage.source.site, client_id=VICTIM) as source,
        Cluster(lost.stage.target.site, client_id=VICTIM) as target,
    ):
        await look_for_stranded(lost.there, source, target)  # the connections, which the looks to come find there
        written, there = 2, Death()
        with mortal(monkeypatch, there):
            await look_for_stranded(lost.there, source, target)
        for number in range(there.requests // 2, there.requests + 1):  # before that nothing of the source's log is read
            await producer.send_and_wait(FIRST.topic, b"ends", partition=FIRST.partition)
            written += 1
            death = Death(arrives_at=number, arrives=producer.commit_transaction)
            with mortal(monkeypatch, death):
                found = await look_for_stranded(lost.there, source, target)
            assert found.records in (None, written), f"the transaction ended before request {number}"
            await producer.begin_transaction()


async def test_a_topic_that_was_never_mirrored_is_stranded_as_a_whole(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 6, (0, 0), (0, 0)) as lost:
        lost.there = lost.stage.link = replace(lost.there, topics=("flights", "late"))
        late = TopicPartition("late", 0)
        await make_topic(lost.stage.source, "late")
        await write(lost.stage.source, late, some_records(0, 9))
        (tail,) = (await lost.stranded()).tails
        assert (tail.where, tail.records, tail.target_wrote) == (late, 9, False)


async def test_what_stays_at_the_source_is_never_mirrored_and_what_comes_later_is(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 7, (6, 4), (3, 2)) as lost:
        source, target = lost.stage.source, lost.stage.target
        kept = {at: contents(await read_all(target, at)) for at in PARTITIONS}
        for _ in range(2):  # a second time changes nothing
            await leave_at_source(lost.there, target, (await lost.stranded()).undecided, "test")
        found = await lost.stranded()
        assert (found.records, found.undecided) == (10, ())
        await resume_link(lost.there, target, "resume-1")
        later = some_records(90_000, 5)
        for at in PARTITIONS:
            await write(source, at, later)
        async with running(lost.there):
            for at in PARTITIONS:
                await wait_for_records(target, at, len(kept[at]) + len(later))
        for at in PARTITIONS:
            assert contents(await read_all(target, at)) == [*kept[at], *contents(later)]
        gaps = (await read_entries(lost.there, target)).gaps.values()
        assert {(gap.partition, gap.kind, gap.status, gap.source_to - gap.source_from) for gap in gaps} == {
            (0, GapKind.STRANDED, GapStatus.PASSED, 6),
            (1, GapKind.STRANDED, GapStatus.PASSED, 4),
        }
        found = await lost.stranded()
        assert count_in(found.tails) == 10, "they are listed as long as the ledger knows of them"
        assert found.records is None, "what lies behind a link that runs is lag"


async def test_after_the_way_back_new_records_are_no_stranded_ones(tmp_path: Path) -> None:
    """The source is active again since the link back was promoted: what it writes from then on is mirrored as ever."""
    async with lost_and_back(tmp_path, 8, (6, 0), (3, 4)) as lost:
        source = lost.stage.source
        async with running(lost.back):
            for at, count in zip(PARTITIONS, (RECORDS + 6 + 3, RECORDS + 4), strict=True):
                await wait_for_records(source, at, count)
        await promote_link(lost.back, source, "switchover-1")
        for at in PARTITIONS:
            await write(source, at, some_records(70_000, 11))
        found = await lost.stranded()
        assert [(tail.where, tail.records) for tail in found.tails] == [(FIRST, 6)]


async def test_what_came_to_the_source_until_it_was_active_again_is_not_brought_behind_newer(tmp_path: Path) -> None:
    """The tail was left; then somebody wrote on at the source, before the link back brought what is newer."""
    async with lost_and_back(tmp_path, 9, (4, 0), (2, 0)) as lost:
        source, target = lost.stage.source, lost.stage.target
        await leave_at_source(lost.there, target, (await lost.stranded()).undecided, "a failback")
        await write(source, FIRST, some_records(70_000, 3))
        async with running(lost.back):
            await wait_for_records(source, FIRST, RECORDS + 4 + 3 + 2)
        await promote_link(lost.back, source, "switchover-1")
        kept = contents(await read_all(target, FIRST))

        tails = await resume_settled(lost.there, source, target, "failback-1")
        assert [(tail.where, tail.records) for tail in tails] == [(FIRST, 3)]
        run = (await read_entries(lost.there, target)).run
        assert run is not None
        assert (run.state, run.operation_id) == (RunState.PROMOTED, "failover-1")

        await leave_at_source(lost.there, target, tails, "the failback, begun again")
        assert await resume_settled(lost.there, source, target, "failback-2") == ()
        await write(source, FIRST, some_records(90_000, 5))
        async with running(lost.there):
            await wait_for_records(target, FIRST, len(kept) + 5)
        assert contents(await read_all(target, FIRST)) == [*kept, *contents(some_records(90_000, 5))]


async def test_a_topic_born_when_the_source_is_active_again_is_no_tail_and_is_mirrored(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 9, (6, 0), (3, 4)) as lost:
        source, target, fresh = lost.stage.source, lost.stage.target, TopicPartition("fresh", 0)
        await come_back(lost)
        lost.there = lost.stage.link = replace(lost.there, topics=("flights", "fresh"))
        await make_topic(source, fresh.topic)
        await write(source, fresh, some_records(80_000, 7))
        found = await lost.stranded()
        assert [(tail.where, tail.records) for tail in found.tails] == [(FIRST, 6)]
        await leave_at_source(lost.there, target, found.undecided, "test")
        await resume_link(lost.there, target, "resume-1")
        async with running(lost.there):
            await wait_for_records(target, fresh, 7)
        assert contents(await read_all(target, fresh)) == contents(await read_all(source, fresh))


async def test_where_both_wrote_a_topic_that_no_link_back_brought_the_end_is_said_to_be_unknown(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 10, (0, 0), (3, 4)) as lost:
        source, target, fresh = lost.stage.source, lost.stage.target, TopicPartition("fresh", 0)
        await come_back(lost)
        lost.there = lost.stage.link = replace(lost.there, topics=("flights", "fresh"))
        for site, count in ((source, 7), (target, 2)):
            await make_topic(site, fresh.topic)
            await write(site, fresh, some_records(80_000 + 100 * count, count))
        found = await lost.stranded()
        (tail,) = found.tails
        assert (tail.where, tail.records, tail.is_end_known, tail.target_wrote) == (fresh, None, False, True)
        with pytest.raises(TailEndUnknown, match="fresh-0 ends at an offset that nobody knows"):
            await leave_at_source(lost.there, target, found.undecided, "test")


async def come_back(lost: Lost) -> None:
    """The link back brings what the target wrote, and is promoted."""
    source = lost.stage.source
    wanted = {at: len(await read_all(source, at)) for at in PARTITIONS}
    for at in PARTITIONS:
        wanted[at] += len(await read_all(lost.stage.target, at)) - RECORDS
    async with running(lost.back):
        for at, count in wanted.items():
            await wait_for_records(source, at, count)
    await promote_link(lost.back, source, "switchover-1")
