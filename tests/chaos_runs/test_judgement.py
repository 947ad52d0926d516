"""The judge of what hands did sees each way in which a mirror could be wrong."""

from __future__ import annotations

import pytest

from broker.wire.records import Record
from mirror.offsets.entries import Gap, GapKind, GapStatus
from mirror.outlook import GapOutlook
from tests.chaos_runs.judgement import judge
from tests.chaos_runs.looking import content_of
from tests.chaos_runs.stage import Sent, Topic


def records(*numbers: int, start: int = 0) -> list[Record]:
    return [Record(start + at, 1, b"k", b"r-flights-0-%d-" % number, ()) for at, number in enumerate(numbers)]


def written(action: str = "", count: int = 5) -> Topic:
    topic = Topic("flights", action)
    topic.sent = [Sent(0, record.offset, content_of(record)) for record in records(*range(count))]
    return topic


def outlook(kind: GapKind, start: int, end: int) -> GapOutlook:
    return GapOutlook("flights", 0, kind, "", start, None, None, start, end, None, None)


def passed(kind: GapKind, start: int, end: int) -> Gap:
    return Gap("flights", 0, kind, start, end, 0, GapStatus.PASSED, 0, "")


ALL = records(0, 1, 2, 3, 4)


def test_an_equal_mirror_is_right() -> None:
    assert judge(written(), "", ALL, records(0, 1, 2, 3, 4, start=7), []) == []


@pytest.mark.parametrize(
    ("target", "word"),
    [
        (records(0, 1, 3, 4), "not at the target"),
        (records(0, 1, 2, 2, 3, 4), "twice"),
        (records(0, 2, 1, 3, 4), "another order"),
    ],
)
def test_what_is_wrong_with_an_untouched_topic_is_named(target: list[Record], word: str) -> None:
    assert any(word in wrong for wrong in judge(written(), "", ALL, target, []))


def test_a_foreign_record_is_nobody_s() -> None:
    foreign = Record(5, 1, None, b"who wrote this", ())
    assert any("nobody wrote" in wrong for wrong in judge(written(), "", ALL, [*ALL, foreign], []))


def test_a_repeat_is_right_only_as_far_as_it_was_shown() -> None:
    topic = written("target-recreate")
    again = records(3, 4, 0, 1, 2, 3, 4)
    topic.outlooks = [outlook(GapKind.TARGET_TRUNCATED, 0, 5)]
    assert judge(topic, topic.action, ALL, again, []) == []
    topic.outlooks = [outlook(GapKind.TARGET_TRUNCATED, 0, 4)]
    assert any("twice" in wrong for wrong in judge(topic, topic.action, ALL, again, []))


def test_a_loss_is_right_only_as_far_as_the_ledger_says_it() -> None:
    topic, source, target = written("source-retention"), records(3, 4), records(0, 3, 4)
    source = [record._replace(offset=record.offset + 3) for record in source]
    assert judge(topic, topic.action, source, target, [passed(GapKind.TRUNCATED_START, 1, 3)]) == []
    short = judge(topic, topic.action, source, target, [passed(GapKind.TRUNCATED_START, 2, 3)])
    assert any("no gap says so" in wrong for wrong in short)
    long = judge(topic, topic.action, source, target, [passed(GapKind.TRUNCATED_START, 0, 3)])
    assert any("was mirrored" in wrong for wrong in long)


def test_what_was_mirrored_stays_when_the_source_loses_it() -> None:
    topic = written("source-recreate")
    topic.mirrored_before = [content_of(record) for record in ALL]
    assert judge(topic, topic.action, [], ALL, []) == []
    assert any("not any more" in wrong for wrong in judge(topic, topic.action, [], ALL[1:], []))


def test_the_site_to_which_nothing_was_done_is_not_blamed() -> None:
    topic = written("source-cut-end")
    assert judge(topic, topic.action, ALL, ALL, [passed(GapKind.TRUNCATED_END, 5, 3)]) == []
    assert any(
        "other site" in wrong
        for wrong in judge(topic, topic.action, ALL, ALL, [passed(GapKind.TARGET_TRUNCATED, 5, 3)])
    )
