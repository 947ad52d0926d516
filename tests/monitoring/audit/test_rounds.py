"""One partition that changes while it is read does not fail the others, and is never relied on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from monitoring import limits
from monitoring.audit.model import (
    ComparablePartition,
    FrozenLink,
    FrozenPartition,
    FrozenSite,
    Place,
    ProvedPart,
    Side,
    Span,
    Step,
)
from monitoring.audit.ranges import comparable
from monitoring.audit.reasons import Reason
from monitoring.audit.rounds import LogStarts, Round, is_named, read_until_settled
from monitoring.errors import SparkFailed

SITE = FrozenSite("east", "localhost:1", None)


def partition(number: int, topic: str = "t") -> FrozenPartition:
    return FrozenPartition(topic, number, f"east.{topic}", Span(0, 10), Span(0, 10), (Step(0, 0),), (10, 10))


def link(*partitions: FrozenPartition) -> FrozenLink:
    return FrozenLink("east-west", SITE, SITE, 1, partitions)


class Sites:
    """Two sites whose logs begin where `starts` says. Each reading is noted, and takes the next of `happens`."""

    def __init__(self, *happens: Mapping[tuple[Side, int], int | None], fails: Iterable[str] = ()) -> None:
        self.starts: dict[tuple[Side, int], int | None] = {}
        self.happens = list(happens)
        self.fails = list(fails)
        self.read_spans: list[dict[int, tuple[Span, Span]]] = []

    def read(self, partitions: Sequence[ComparablePartition]) -> int:
        self.read_spans.append({item.partition: (item.source, item.target) for item in partitions})
        if self.happens:
            self.starts |= self.happens.pop(0)
        if self.fails and (text := self.fails.pop(0)):
            raise SparkFailed("Spark could not read both sites") from RuntimeError(text)
        return len(self.read_spans)

    def look(self, partitions: Sequence[ComparablePartition]) -> LogStarts:
        found = {}
        for item in partitions:
            for side, topic in ((Side.SOURCE, item.topic), (Side.TARGET, item.target_topic)):
                if (start := self.starts.get((side, item.partition), 0)) is not None:
                    found[side, topic, item.partition] = start
        return found

    def settle(self, frozen: FrozenLink) -> tuple[FrozenLink, list[Round[int]]]:
        return read_until_settled(frozen, self.read, self.look, lambda _: None)


def places(rounds: Sequence[Round[int]]) -> list[set[Place]]:
    return [set(done.partitions) for done in rounds]


def test_what_stays_as_it_is_is_read_once() -> None:
    frozen = link(partition(0), partition(1))
    settled, rounds = Sites().settle(frozen)
    assert settled == frozen
    assert places(rounds) == [{("t", 0), ("t", 1)}]


@pytest.mark.parametrize("side", Side)
def test_a_partition_whose_records_expire_is_frozen_anew_and_read_again_alone(side: Side) -> None:
    sites = Sites({(side, 1): 4})
    settled, rounds = sites.settle(link(partition(0), partition(1)))
    assert places(rounds) == [{("t", 0)}, {("t", 1)}]
    assert sites.read_spans[1] == {1: (Span(4, 10), Span(4, 10))}
    span = settled.partitions[1].source if side is Side.SOURCE else settled.partitions[1].target
    assert span == Span(4, 10)
    assert settled.partitions[0] == partition(0)


def test_a_partition_that_expires_as_it_is_read_is_left_out_in_the_end() -> None:
    settled, rounds = Sites(*[{(Side.SOURCE, 1): n} for n in range(1, 10)]).settle(link(partition(0), partition(1)))
    assert places(rounds)[0] == {("t", 0)}
    assert ("t", 1) not in set().union(*places(rounds))
    assert [item.left_out for item in settled.partitions] == [None, Reason.EXPIRED_WHILE_READ]


def test_a_partition_that_expires_as_a_whole_is_an_empty_copy() -> None:
    settled, _ = Sites({(Side.SOURCE, 0): 10}).settle(link(partition(0)))
    assert (settled.partitions[0].source, settled.partitions[0].left_out) == (Span(10, 10), None)


def test_a_partition_that_is_gone_is_left_out_also_when_the_reading_fails_for_it() -> None:
    for fails in ((), ("no such topic",)):
        sites = Sites({(Side.TARGET, 1): None}, fails=fails)
        settled, rounds = sites.settle(link(partition(0), partition(1)))
        assert [item.left_out for item in settled.partitions] == [None, Reason.NOT_READABLE]
        assert places(rounds) == [{("t", 0)}]


def test_a_partition_that_the_error_names_is_left_out_and_the_others_are_read() -> None:
    sites = Sites(fails=["KafkaException: Received exception when fetching the next record from east.t-1."])
    settled, rounds = sites.settle(link(partition(0), partition(1), partition(11)))
    assert [item.left_out for item in settled.partitions] == [None, Reason.RECORDS_NOT_READABLE, None]
    assert places(rounds) == [{("t", 0), ("t", 11)}]


def test_an_error_that_no_partition_explains_is_raised() -> None:
    with pytest.raises(SparkFailed):
        Sites(fails=["OutOfMemoryError"]).settle(link(partition(0)))


def test_an_error_that_goes_on_is_raised_in_the_end() -> None:
    sites = Sites(*[{(Side.SOURCE, 0): n} for n in range(1, 10)], fails=["lost"] * 9)
    with pytest.raises(SparkFailed):
        sites.settle(link(partition(0), partition(1)))
    assert len(sites.read_spans) == limits.AUDIT_READ_ATTEMPTS


def test_names_are_taken_as_wholes() -> None:
    def named(topic: str, number: int, text: str) -> bool:
        failure = SparkFailed("short")
        failure.__cause__ = RuntimeError(text)
        return is_named(partition(number, topic), failure)

    assert named("t", 1, "position for partition t-1 could not be determined")
    assert named("a.b", 1, "TopicPartition: east.a.b-1.")
    assert not named("t", 1, "t-11")
    assert not named("t", 1, "at-1")
    assert not named("b", 1, "a.b-1")


def test_a_compacted_partition_is_compared_and_nothing_of_it_is_carried_on() -> None:
    part = ProvedPart(Span(0, 6), Span(0, 6), 6, 6, 1, "run-1")
    found, left_out = comparable(replace(partition(0), compacted=True, proved=(part,)))
    assert found is not None
    assert (found.source, found.target, found.compacted) == (Span(0, 10), Span(0, 10), True)
    assert (found.proved, left_out) == ((), ())
