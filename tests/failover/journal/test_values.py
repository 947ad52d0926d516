"""The journal as values: what is read back, what is found to be changed, and what was never written whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise

import pytest

from failover.errors import JournalDamaged, NewerVersion, OperationUnderWay
from failover.journal.standing import OperationState, intent_of, refuse_second, standing_of
from failover.journal.values import (
    GENESIS_HASH,
    JOURNAL_VERSION,
    PART_MAX_BYTES,
    Event,
    JournalEntry,
    Lease,
    OperationLog,
    read_operations,
)
from failover.planning.intent import INTENT_FIELDS, Intent
from failover.planning.plan_file import PLAN_VERSION
from failover.running.steps import Operation

INTENT = Intent(Operation.SWITCHOVER, ("east-west",), "east", "west")
NOW_MS = 1_700_000_000_000
RecordOf = tuple[bytes, bytes]


def written(operation_id: str, details: list[Mapping[str, object]]) -> list[JournalEntry]:
    entries: list[JournalEntry] = []
    for number, detail in enumerate(details):
        before = entries[-1].hash() if entries else GENESIS_HASH
        entries.append(JournalEntry(number, NOW_MS + number, operation_id, "step", detail, before))
    return entries


def records(*operations: list[JournalEntry]) -> list[RecordOf]:
    return [record for entries in operations for entry in entries for record in entry.records()]


ONE = written("one", [{"number": number} for number in range(4)])


def read(found: list[RecordOf], operation_id: str = "one") -> OperationLog:
    return read_operations(found)[operation_id]


def test_reads_back_what_was_recorded_by_operation() -> None:
    other = written("other", [{"text": "é"}])
    mixed = [*records(ONE[:2]), *records(other), *records(ONE[2:])]
    assert list(read_operations(mixed)) == ["one", "other"]
    assert read(mixed).whole().entries == tuple(ONE)
    assert read(mixed, "other").whole().entries == tuple(other)
    assert read(mixed).next_hash == ONE[-1].hash()


def test_each_entry_carries_the_hash_of_the_line_before() -> None:
    assert ONE[0].previous_hash == "0" * 64
    for before, entry in pairwise(ONE):
        assert entry.previous_hash == hashlib.sha256(before.line().encode()).hexdigest()


@pytest.mark.parametrize("number", range(3))
def test_an_entry_that_is_edited_or_dropped_is_found_and_those_before_it_stand(number: int) -> None:
    found = records(ONE)
    edited = [(key, value.replace(b'"number":%d' % number, b'"number":7')) for key, value in found]
    for damaged in (edited, found[:number] + found[number + 1 :]):
        log = read(damaged)
        with pytest.raises(JournalDamaged, match="the journal of one is damaged: entry"):
            log.whole()
        assert log.entries[:number] == tuple(ONE[:number])
        assert len(log.entries) <= number + 1


def test_damage_to_one_operation_is_that_ones() -> None:
    other = written("other", [{}])
    found = [*records(ONE)[1:], *records(other)]
    assert read(found, "other").whole().entries == tuple(other)
    with pytest.raises(JournalDamaged):
        read(found).whole()


def test_a_long_entry_is_cut_into_parts_and_is_there_only_with_all_of_them() -> None:
    long = written("one", [{"text": "x" * (2 * PART_MAX_BYTES)}, {"number": 1}])
    parts = long[0].records()
    assert len(parts) == 3
    assert max(len(value) for _, value in parts) == PART_MAX_BYTES
    assert read(records(long)).whole().entries == tuple(long)
    torn = [*records(written("one", [{"number": 0}])), *parts[:2]]
    assert [entry.detail["number"] for entry in read(torn).whole().entries] == [0]
    with pytest.raises(JournalDamaged, match="no entry"):
        read(parts[:2]).whole()


def test_who_goes_on_behind_a_torn_entry_writes_it_anew() -> None:
    """Whether it has as many parts as the torn one or not."""
    first = written("one", [{}])
    torn = JournalEntry(1, NOW_MS, "one", "step", {"text": "x" * (2 * PART_MAX_BYTES)}, first[0].hash()).records()[:2]
    for size in (1, 2 * PART_MAX_BYTES):
        anew = JournalEntry(1, NOW_MS, "one", "step", {"text": "y" * size}, first[0].hash())
        log = read([*records(first), *torn, *anew.records()])
        assert log.whole().entries == (*first, anew)


def test_a_lease_is_no_entry_and_the_newest_one_counts() -> None:
    early, late = Lease("process 7 on hill", NOW_MS), Lease("process 8 on dale", NOW_MS + 5)
    log = read([*records(ONE), early.record("one"), late.record("one")])
    assert log.lease == late
    assert log.whole().entries == tuple(ONE)
    assert "one" not in read_operations([late.record("one")])


def test_records_of_nobody_are_passed_over() -> None:
    strange: list[tuple[bytes | None, bytes | None]] = [
        (None, b"x"),
        (b"not json", b"{}"),
        (b'["one"]', b"{}"),
        (b'["one","lease"]', b"not json"),
        (b'["two",0,0,1]', None),
        (b'["three",0,5,1]', b"{}"),
        (b'["three",0,0,0]', b"{}"),
    ]
    found = read_operations([*strange, *records(ONE)])
    assert found["one"].whole().entries == tuple(ONE)


def test_a_newer_version_is_not_guessed_at_and_said_to_be_newer() -> None:
    """Its intent may ask for what this one would leave undone."""
    found = records(ONE)
    key, value = found[2]
    newer = json.dumps({**json.loads(value), "v": JOURNAL_VERSION + 1, "more": True}).encode()
    log = read([*found[:2], (key, newer), *found[3:]])
    with pytest.raises(NewerVersion, match=f"version {JOURNAL_VERSION + 1}; this one reads {JOURNAL_VERSION}"):
        log.whole()
    assert log.entries == tuple(ONE[:2])
    lease = (b'["one","lease"]', b'{"v":9,"who":"a newer one","at_ms":7,"more":1}')
    assert read([*found, lease]).lease == Lease("a newer one", 7)


def test_what_an_earlier_version_wrote_is_read_and_gone_on_with() -> None:
    first = JournalEntry(0, NOW_MS, "one", "planned", {}, GENESIS_HASH, version=1)
    second = JournalEntry(1, NOW_MS, "one", "step", {}, first.hash())
    assert json.loads(first.line())["v"] == 1
    assert read(records([first, second])).whole().entries == (first, second)


def test_another_field_of_an_intent_is_another_version() -> None:
    """Here the two stand side by side: change both, and PLAN_VERSION."""
    fields = "allow_data_loss drain_timeout_s even_if_source_answers even_if_source_partly_there freezes groups is_site"
    fields += " left_groups left_partitions links no_groups operation reason refused_links set_back_groups source"
    fields += " target timestamp_ms topics whole_site"
    assert (JOURNAL_VERSION, PLAN_VERSION, sorted(INTENT_FIELDS)) == (5, 5, fields.split())


def test_an_intent_that_says_more_is_of_a_newer_version_and_the_others_are_told_as_ever() -> None:
    newer = written("newer", [{"intent": {**INTENT.document(), "sideways": True}, "who": "ann"}])
    found = read_operations(records(newer, written("other", [{"intent": INTENT.document(), "who": "ben"}])))
    told = {one.operation_id: standing_of(one, NOW_MS) for one in found.values()}
    assert told["newer"].state is OperationState.NEWER_VERSION
    assert (told["newer"].links, told["newer"].source) == (("east-west",), "east")
    assert told["other"].state is OperationState.UNDER_WAY
    with pytest.raises(NewerVersion, match="sideways"):
        intent_of(found["newer"])
    with pytest.raises(NewerVersion, match="nothing was changed"):
        refuse_second({"newer": found["newer"]}, ("east", "west"), NOW_MS)
    refuse_second({"newer": found["newer"]}, ("west", "east"), NOW_MS)


def test_a_damaged_journal_holds_up_others_only_while_its_machine_is_heard_of() -> None:
    whole = written("one", [{"intent": INTENT.document(), "who": "ann"}, {}, {}])
    found = read_operations(records(whole[:1], whole[2:]))
    with pytest.raises(OperationUnderWay, match="ann"):
        refuse_second(found, ("east", "west"), NOW_MS + 1000)
    refuse_second(found, ("east", "west"), NOW_MS + 60_000)


@pytest.mark.parametrize("intent", [{"operation": "sabotage"}, {"operation": "failover"}, 7, None])
def test_one_whose_intent_nobody_can_read_is_damaged_and_holds_up_no_others_for_long(intent: object) -> None:
    """Each operation ended with a traceback, also those that were to begin."""
    found = read_operations(records(written("one", [{"intent": intent, "who": "ann"}])))
    assert standing_of(found["one"], NOW_MS).state is OperationState.DAMAGED
    with pytest.raises(JournalDamaged, match="one"):
        intent_of(found["one"])
    refuse_second(found, ("east", "west"), NOW_MS + 60_000)


def test_an_operation_has_ended_only_with_an_end() -> None:
    for event in Event:
        log = OperationLog("one", (JournalEntry(0, NOW_MS, "one", event, {}, GENESIS_HASH),))
        assert log.is_ended == (event in (Event.FINISHED, Event.GIVEN_UP, Event.ABORTED))
