"""The journal as values: what is read back, what is found to be changed, and what was never written whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise

import pytest

from failover.errors import JournalDamaged
from failover.journal import (
    GENESIS_HASH,
    PART_MAX_BYTES,
    Event,
    JournalEntry,
    Lease,
    OperationLog,
    read_operations,
)

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
    ]
    found = read_operations([*strange, *records(ONE)])
    assert found["one"].whole().entries == tuple(ONE)


def test_another_version_is_not_guessed_at() -> None:
    key, value = ONE[0].records()[0]
    newer = json.dumps({**json.loads(value), "v": 2}).encode()
    with pytest.raises(JournalDamaged):
        read([(key, newer)]).whole()


def test_an_operation_has_ended_only_with_an_end() -> None:
    for event in Event:
        log = OperationLog("one", (JournalEntry(0, NOW_MS, "one", event, {}, GENESIS_HASH),))
        assert log.is_ended == (event in (Event.FINISHED, Event.GIVEN_UP, Event.ABORTED))
