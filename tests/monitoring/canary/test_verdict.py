"""The canary's score over invented histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitoring.canary.record import CanaryRecord, decode, encode
from monitoring.canary.verdict import CanaryJudge

DEADLINE_MS = 30_000
LOST_AFTER_MS = 600_000
FIRST_OFFSET = 1_000
"""Others wrote to the canary's topic before: a sequence is no offset."""


def record(sequence: int, sent_ms: int = 0, run: str = "me") -> CanaryRecord:
    return CanaryRecord(run, sequence, sent_ms)


def judge_with(sequences: int) -> CanaryJudge:
    judge = CanaryJudge("east-west", "me", deadline_ms=DEADLINE_MS, lost_after_ms=LOST_AFTER_MS)
    for sequence in range(sequences):
        judge.sending(record(sequence, sequence))
        judge.acknowledged(record(sequence), FIRST_OFFSET + sequence)
    return judge


def test_all_arrive_in_order() -> None:
    judge = judge_with(3)
    assert [judge.seen(record(n), n + 10) for n in range(3)] == [10, 10, 10]
    judge.expire(DEADLINE_MS * 2)
    report = judge.report()
    assert report.holds
    assert (report.sent_records, report.received_records, report.latency_p50_ms) == (3, 3, 10.0)


def test_silence_is_not_a_promise_kept() -> None:
    assert not CanaryJudge("l", "me").report().holds


def test_a_record_is_late_after_the_deadline_and_lost_only_when_the_mirror_has_passed_it() -> None:
    judge = judge_with(3)
    judge.seen(record(2), 5)
    judge.expire(DEADLINE_MS)
    assert judge.report().late_records == 0
    judge.expire(DEADLINE_MS + 2)
    report = judge.report()
    assert (report.late_records, report.overdue_records, report.waiting_records, report.lost_records) == (2, 2, 2, 0)
    judge.passed(FIRST_OFFSET)
    assert judge.report().lost_records == 0, "the mirror stands before the first of them"
    judge.passed(FIRST_OFFSET + 1)
    report = judge.report()
    assert (report.lost_records, report.late_records, report.overdue_records, report.holds) == (1, 1, 1, False)


def test_what_was_under_way_at_a_promotion_is_neither_late_nor_lost_nor_a_duplicate_when_it_comes() -> None:
    judge = judge_with(3)
    judge.seen(record(0), 5)
    judge.sending(record(3, 3))
    judge.strand()
    judge.acknowledged(record(3), FIRST_OFFSET + 3)
    judge.expire(LOST_AFTER_MS * 2)
    judge.passed(FIRST_OFFSET + 9)
    report = judge.report()
    assert (report.stranded_records, report.late_records, report.lost_records, report.waiting_records) == (3, 0, 0, 0)
    assert report.holds
    assert judge.seen(record(2), LOST_AFTER_MS * 2) is None
    report = judge.report()
    assert (report.received_records, report.duplicate_records, report.order_breaks) == (1, 0, 0)
    judge.seen(record(2), LOST_AFTER_MS * 2)
    assert judge.report().duplicate_records == 1, "the second copy of one is"


def test_what_no_map_can_prove_is_lost_after_the_long_limit() -> None:
    judge = judge_with(1)
    judge.expire(LOST_AFTER_MS)
    assert (judge.report().late_records, judge.report().lost_records) == (1, 0)
    judge.expire(LOST_AFTER_MS + 1)
    report = judge.report()
    assert (report.late_records, report.lost_records, report.waiting_records) == (0, 1, 0)


def test_a_late_arrival_is_not_lost_and_no_duplicate() -> None:
    judge = judge_with(2)
    judge.seen(record(0), 5)
    judge.expire(DEADLINE_MS + 2)
    assert not judge.report().holds, "nobody knows yet whether the other one comes"
    judge.seen(record(1), DEADLINE_MS + 3)
    report = judge.report()
    assert (report.lost_records, report.late_records, report.overdue_records) == (0, 1, 0)
    assert (report.duplicate_records, report.holds) == (0, True)


def test_a_record_that_comes_after_it_was_given_up_is_late() -> None:
    judge = judge_with(1)
    judge.expire(LOST_AFTER_MS + 1)
    judge.seen(record(0), LOST_AFTER_MS + 2)
    report = judge.report()
    assert (report.lost_records, report.late_records, report.duplicate_records) == (0, 1, 0)
    assert (judge.lost_ever, judge.overdue_ever) == (1, 1)


def test_a_later_run_does_not_count_what_an_earlier_one_lost() -> None:
    """Both read one topic: the records tell whose they are."""
    earlier = judge_with(2)
    later = CanaryJudge("east-west", "later", deadline_ms=DEADLINE_MS, lost_after_ms=LOST_AFTER_MS)
    later.sending(record(0, 0, "later"))
    later.acknowledged(record(0, 0, "later"), FIRST_OFFSET + 2)
    for judge in (earlier, later):
        for arrived in (record(1), record(1), record(0, 0, "later")):
            judge.seen(arrived, 5)
        judge.passed(FIRST_OFFSET + 3)
    assert (earlier.report().lost_records, earlier.report().duplicate_records) == (1, 1)
    assert later.report().holds
    assert later.report().late_records == 0


@given(st.data())
def test_every_record_has_one_fate_and_counters_never_fall(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 6))
    judge = judge_with(count)
    now_ms, ever = 0, (0, 0)
    for _ in range(data.draw(st.integers(0, 15))):
        step = data.draw(st.sampled_from(["time", "seen", "passed"]))
        if step == "time":
            now_ms += data.draw(st.sampled_from([1_000, DEADLINE_MS, LOST_AFTER_MS]))
            judge.expire(now_ms)
        elif step == "seen":
            judge.seen(record(data.draw(st.integers(0, 5))), now_ms)
        else:
            judge.passed(FIRST_OFFSET + data.draw(st.integers(0, 6)))
        report = judge.report()
        assert report.received_records + report.waiting_records + report.lost_records == count
        assert min(report.late_records, report.lost_records, report.overdue_records) >= 0
        assert report.overdue_records <= report.waiting_records
        assert (judge.overdue_ever, judge.lost_ever) >= ever
        ever = (judge.overdue_ever, judge.lost_ever)


def test_a_second_arrival_is_a_duplicate() -> None:
    judge = judge_with(2)
    for sequence in (0, 1, 1, 0):
        judge.seen(record(sequence), 5)
    report = judge.report()
    assert (report.duplicate_records, report.order_breaks, report.received_records) == (2, 0, 2)
    assert not report.holds


def test_a_lower_sequence_after_a_higher_one_breaks_the_order() -> None:
    judge = judge_with(3)
    for sequence in (0, 2, 1):
        judge.seen(record(sequence), 5)
    report = judge.report()
    assert (report.order_breaks, report.duplicate_records, report.holds) == (1, 0, False)


def test_an_unacknowledged_record_may_come_or_not() -> None:
    judge = CanaryJudge("l", "me", deadline_ms=DEADLINE_MS, lost_after_ms=LOST_AFTER_MS)
    for sequence in (0, 1):
        judge.sending(record(sequence))
        judge.refused(record(sequence))
    judge.seen(record(1), 5)
    judge.expire(DEADLINE_MS * 3)
    report = judge.report()
    assert report.holds
    assert (report.unacknowledged_records, report.received_records, report.lost_records) == (2, 1, 0)


def test_an_arrival_before_the_acknowledgement_counts_once() -> None:
    judge = CanaryJudge("l", "me", deadline_ms=DEADLINE_MS, lost_after_ms=LOST_AFTER_MS)
    judge.sending(record(0))
    judge.seen(record(0), 3)
    judge.acknowledged(record(0), FIRST_OFFSET)
    judge.expire(DEADLINE_MS + 1)
    assert judge.report().holds


def test_records_survive_the_wire_and_others_are_ignored() -> None:
    wanted = CanaryRecord("run", 7, 1_700_000_000_000)
    assert decode(encode(wanted)[1]) == wanted
    for foreign in (None, b"", b"{}", b"[]", b'"x"', b'{"v":2,"run":"a","sequence":1,"sent_ms":1}', b"\xff"):
        assert decode(foreign) is None
