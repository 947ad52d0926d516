"""What comes while a coordinator's partition is loaded leaves the same as if it had come after, or before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.coordination.internal_log import TRANSACTIONS_TOPIC, Producer
from broker.errors import BrokerError
from broker.groups import coordinator as groups_coordinator
from broker.groups.formats import Committed
from broker.transactions import coordinator as transactions_coordinator
from broker.transactions.markers import Marker
from broker.transactions.model import InitAsk
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from tests.broker.coordinator_host import Host, at_once, start

OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
FIRST, SECOND = TopicPartition("flights", 0), TopicPartition("flights", 1)
PRODUCER = Producer(7, 0)
State = dict[str, tuple[dict[TopicPartition, Committed], dict[int, dict[TopicPartition, Committed]]]]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others get their turn after each record, and while the cluster is asked."""
    for module in (groups_coordinator, transactions_coordinator):
        monkeypatch.setattr(module, "COORDINATOR_LOAD_RECORDS_PER_TURN", 1)
    gone_topics = Host.gone_topics

    async def asked(self: Host, names: Collection[str]) -> set[str]:
        await asyncio.sleep(0)
        return await gone_topics(self, names)

    monkeypatch.setattr(Host, "gone_topics", asked)


def commit(host: Host, group: str, where: TopicPartition, offset: int, producer: Producer | None = None) -> None:
    committed = {where: Committed(offset, -1, "", 0)}
    done = host.groups.offsets.commit(group, committed, is_known=lambda _: True, producer=producer)
    assert done == {where: ErrorCode.NONE}


def end(host: Host, *, commits: bool, epoch: int = 0) -> None:
    marker = Marker(PRODUCER._replace(producer_epoch=epoch), commits, 0)
    assert at_once(host.markers.write(marker, {OFFSETS})) == {OFFSETS: ErrorCode.NONE}


def state_of(host: Host) -> State:
    offsets = host.groups.offsets
    return {name: (offsets.of(name).committed, offsets.of(name).pending) for name in offsets.group_ids()}


def led_anew(host: Host) -> None:
    host.all_groups.leads(0, None)
    host.all_groups.leads(0, 0)


def quiet(host: Host) -> State:
    """What the log says to whoever loads it now."""
    led_anew(host)
    at_once(host.all_groups.load())
    return state_of(host)


def disturbed(host: Host, turn: int, disturb: Callable[[], None]) -> bool:
    """Loads, and has it disturbed when it gives others their turn for the `turn`th time -> whether it did so often."""
    led_anew(host)
    loading = host.all_groups.load()
    if turn == 0:
        disturb()
    was = turn == 0
    for number, _ in enumerate(steps(loading), 1):
        if number == turn:
            disturb()
            was = True
    return was


def steps(work: Coroutine[Any, Any, object]) -> Iterator[None]:
    while True:
        try:
            work.send(None)
        except StopIteration:
            return
        yield


def worlds(tmp_path: Path) -> Iterator[tuple[Host, int]]:
    """A host for each turn that a load can be disturbed at; whoever is done with them closes the iterator."""
    for turn in range(100):
        folder = tmp_path / str(turn)
        folder.mkdir()
        host = start(folder)
        host.create_topic("flights", 2)
        yield host, turn
        host.close()
    raise AssertionError("no end of the load")


def two_transactions(host: Host, *, first_commits: bool) -> None:
    """Of one producer, in two groups; the second is open."""
    commit(host, "g", FIRST, 10)
    commit(host, "g", FIRST, 50, PRODUCER)
    commit(host, "other", FIRST, 51, PRODUCER)
    commit(host, "noise", FIRST, 1)
    end(host, commits=first_commits)
    commit(host, "noise", FIRST, 2)
    commit(host, "g", SECOND, 99, PRODUCER)
    commit(host, "noise", FIRST, 3)


@pytest.mark.parametrize("second_commits", [True, False])
@pytest.mark.parametrize("first_commits", [True, False])
def test_a_marker_ends_the_transaction_that_it_was_written_for(
    tmp_path: Path, first_commits: bool, second_commits: bool
) -> None:
    for host, turn in worlds(tmp_path):
        two_transactions(host, first_commits=first_commits)
        was = disturbed(host, turn, partial(end, host, commits=second_commits))
        if not was:
            assert turn > 10, "as many as there are records"
            break
        found = state_of(host)
        assert found == quiet(host), f"at turn {turn}"
        (committed, pending), expected = found["g"], {FIRST: 50 if first_commits else 10}
        assert {where: each.offset for where, each in committed.items()} == (
            {**expected, SECOND: 99} if second_commits else expected
        )
        assert not pending
        assert ("other" in found) == first_commits


@pytest.mark.parametrize("commits", [True, False])
def test_a_marker_before_and_one_after_the_end_of_the_log_was_reached(tmp_path: Path, commits: bool) -> None:
    """The next transaction's may come when the log is read and the topics of the offsets are still asked for."""
    for host, turn in worlds(tmp_path):
        two_transactions(host, first_commits=True)
        led_anew(host)
        loading = steps(host.all_groups.load())
        for _ in range(turn):
            if next(loading, ...) is ...:
                break
        end(host, commits=not commits)
        next(loading, None)
        end(host, commits=commits, epoch=1)
        was = sum(1 for _ in loading)
        assert state_of(host) == quiet(host), f"at turn {turn}"
        if not was:
            break


def test_a_marker_in_the_pause_after_a_load_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = start(tmp_path)
    host.create_topic("flights", 2)
    two_transactions(host, first_commits=False)
    led_anew(host)

    async def unreachable(_: object) -> set[str]:
        raise BrokerError("the metadata store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(host, "gone_topics", unreachable)
        at_once(host.all_groups.load())
    end(host, commits=True)
    host.all_groups.forget_topic("unheard-of")
    at_once(host.all_groups.load())
    assert state_of(host) == quiet(host)
    assert {where: each.offset for where, each in state_of(host)["g"][0].items()} == {FIRST: 10, SECOND: 99}
    host.close()


def test_a_marker_in_a_partition_of_which_there_was_nothing_to_load(tmp_path: Path) -> None:
    host = start(tmp_path)
    host.create_topic("flights", 2)
    commit(host, "g", FIRST, 50, PRODUCER)
    end(host, commits=True)
    assert host.groups.offsets.of("g").committed[FIRST].offset == 50
    host.close()


def test_offsets_of_a_topic_that_is_deleted_and_made_anew_meanwhile_are_gone(tmp_path: Path) -> None:
    """The cluster has a topic of that name, so nobody else drops them; also the pending ones, whoever ends them."""
    for host, turn in worlds(tmp_path):
        host.create_topic("kept")
        kept = TopicPartition("kept", 0)
        commit(host, "g", kept, 5)
        two_transactions(host, first_commits=True)
        was = disturbed(host, turn, partial(host.all_groups.forget_topic, "flights"))
        if not was:
            break
        assert state_of(host) == {"g": ({kept: Committed(5, -1, "", 0, log_offset=0)}, {})}, f"at turn {turn}"
        assert state_of(host) == quiet(host), f"at turn {turn}"
        end(host, commits=True)
        assert state_of(host) == quiet(host), f"at turn {turn}"


def test_nobody_else_writes_while_either_is_loaded(tmp_path: Path) -> None:
    """Of `__transaction_state` too: what is read there counts when all of it is."""
    host = start(tmp_path)
    host.create_topic("flights", 2)
    two_transactions(host, first_commits=True)
    for number in range(5):
        ask = InitAsk(f"x-{number}", 60_000, 900_000)
        assert at_once(host.transactions.init_producer_id(ask))[0] is ErrorCode.NONE
    led_anew(host)
    host.all_transactions.leads(0, None)
    host.all_transactions.leads(0, 0)
    ends = [host.log(topic).log_end_offset for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)]
    turns = 0
    for coordinators in (host.all_transactions, host.all_groups):
        for _ in steps(coordinators.load()):
            turns += 1
            for asked in (
                coordinators.ask("x-1", lambda at: at.log.append("x-1", [])),
                coordinators.wait_for("x-1", lambda at: asyncio.sleep(0)),
                coordinators.ask_all(lambda at: at.log.append("x-1", [])),
            ):
                with pytest.raises(BrokerError) as refused:
                    at_once(asked)
                assert refused.value.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert turns > 15
    assert [host.log(topic).log_end_offset for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)] == ends
    assert len(host.transactions.transactions) == 5
    host.close()
