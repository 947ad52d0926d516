"""The canary's score over invented histories."""

from __future__ import annotations

from monitoring.canary.record import CanaryRecord, decode, encode
from monitoring.canary.verdict import CanaryJudge

DEADLINE_MS = 30_000


def record(sequence: int, sent_ms: int = 0, run: str = "me") -> CanaryRecord:
    return CanaryRecord(run, sequence, sent_ms)


def judge_with(sequences: int) -> CanaryJudge:
    judge = CanaryJudge("east-west", "me", loss_deadline_ms=DEADLINE_MS)
    for sequence in range(sequences):
        judge.sending(record(sequence, sequence))
        judge.acknowledged(record(sequence))
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


def test_a_record_is_lost_only_after_the_deadline() -> None:
    judge = judge_with(2)
    judge.seen(record(1), 5)
    judge.expire(DEADLINE_MS)
    assert judge.report().lost_records == 0
    judge.expire(DEADLINE_MS + 1)
    report = judge.report()
    assert (report.lost_records, report.waiting_records, report.holds) == (1, 0, False)


def test_a_late_arrival_is_no_longer_lost_and_no_duplicate() -> None:
    judge = judge_with(1)
    judge.expire(DEADLINE_MS + 1)
    judge.seen(record(0), DEADLINE_MS + 2)
    report = judge.report()
    assert (report.lost_records, report.late_records, report.duplicate_records) == (0, 1, 0)


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
    judge = CanaryJudge("l", "me", loss_deadline_ms=DEADLINE_MS)
    for sequence in (0, 1):
        judge.sending(record(sequence))
        judge.refused(record(sequence))
    judge.seen(record(1), 5)
    judge.expire(DEADLINE_MS * 3)
    report = judge.report()
    assert report.holds
    assert (report.unacknowledged_records, report.received_records, report.lost_records) == (2, 1, 0)


def test_an_arrival_before_the_acknowledgement_counts_once() -> None:
    judge = CanaryJudge("l", "me", loss_deadline_ms=DEADLINE_MS)
    judge.sending(record(0))
    judge.seen(record(0), 3)
    judge.acknowledged(record(0))
    judge.expire(DEADLINE_MS + 1)
    assert judge.report().holds


def test_a_restart_goes_on_with_what_was_under_way() -> None:
    judge = CanaryJudge("l", "new", loss_deadline_ms=DEADLINE_MS)
    old = [record(n, 100, "old") for n in range(4)]
    judge.adopt(at_source=old, at_target=old[:2])
    assert judge.waiting_records == 2
    judge.seen(old[2], 150)
    judge.seen(old[1], 160)
    judge.expire(101 + DEADLINE_MS)
    report = judge.report()
    assert (report.received_records, report.lost_records, report.duplicate_records) == (1, 1, 1)


def test_another_canary_of_the_link_is_left_alone() -> None:
    judge = CanaryJudge("l", "me", loss_deadline_ms=DEADLINE_MS)
    judge.adopt(at_source=[record(5, 0, "other")], at_target=[record(5, 0, "other")])
    for sequence in (6, 7):
        assert judge.seen(record(sequence, 0, "other"), 1) is None
    judge.seen(record(0, 0, "stranger"), 1)
    report = judge.report()
    assert (report.received_records, report.duplicate_records) == (0, 0)


def test_records_survive_the_wire_and_others_are_ignored() -> None:
    wanted = CanaryRecord("run", 7, 1_700_000_000_000)
    assert decode(encode(wanted)[1]) == wanted
    for foreign in (None, b"", b"{}", b"[]", b'"x"', b'{"v":2,"run":"a","sequence":1,"sent_ms":1}', b"\xff"):
        assert decode(foreign) is None
