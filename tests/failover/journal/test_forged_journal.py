"""A journal that a forger wrote, with hashes that fit, or a damaged disk: it is one operation's, and stops no other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.site import Site
from broker.wire.records import Record, encode_batch
from failover.errors import JournalDamaged, OperationUnderWay
from failover.failback.waves import moved_along
from failover.journal.log import OperationJournal, claim, load_operations
from failover.journal.standing import (
    OperationState,
    intent_of,
    is_verified,
    refuse_second,
    standing_of,
    to_forget,
    under_way,
)
from failover.journal.topic import WHERE
from failover.journal.values import (
    GENESIS_HASH,
    JOURNAL_VERSION,
    Event,
    JournalEntry,
    Lease,
    OperationLog,
    hash_of,
    read_operations,
)
from failover.planning.intent import FLAGS, INTENT_FIELDS, NAMES, TEXTS
from mirror.api import LinkRun, RunState
from mirror.link import Link
from tests.broker.running import running_broker
from tests.failover.journal.test_values import INTENT, NOW_MS

SITES, OTHERS = ("east", "west"), ("north", "west")
PLANNED = (Event.PLANNED, {"intent": INTENT.document(), "who": "ann"})
RecordOf = tuple[bytes | None, bytes | None]


def line_of(sequence: int, event: str, detail: bytes, before: str, at_ms: object = NOW_MS) -> bytes:
    """As farshore writes it, whatever the detail is."""
    text = (
        f'{{"at_ms":{at_ms},"detail":@,"event":"{event}","operation_id":"bad","previous_hash":"{before}",'
        f'"sequence":{sequence},"v":{JOURNAL_VERSION}}}'
    )
    return text.encode().replace(b"@", detail)


def chained(*told: tuple[str, bytes], at_ms: object = NOW_MS) -> list[RecordOf]:
    """Entries of "bad" whose hashes fit."""
    found: list[RecordOf] = []
    before = GENESIS_HASH
    for sequence, (event, detail) in enumerate(told):
        line = line_of(sequence, event, detail, before, at_ms=at_ms)
        found.append((json.dumps(["bad", sequence, 0, 1]).encode(), line))
        before = hash_of(line)
    return found


def forged_intent(name: str, value: object) -> list[RecordOf]:
    return chained((Event.PLANNED, json.dumps({"intent": {**INTENT.document(), name: value}, "who": "ann"}).encode()))


def good() -> list[RecordOf]:
    """An operation of other sites that has ended, and says all that one must."""
    intent = {**INTENT.document(), "source": OTHERS[0]}
    told: list[tuple[str, Mapping[str, Any]]] = [
        (Event.PLANNED, {"intent": intent, "who": "ben"}),
        (Event.FINISHED, {"verified": True, "has_findings": False, "results": []}),
    ]
    entries: list[JournalEntry] = []
    for number, (event, detail) in enumerate(told):
        entries.append(
            JournalEntry(number, NOW_MS, "good", event, detail, entries[-1].hash() if entries else GENESIS_HASH)
        )
    return [record for entry in entries for record in entry.records()]


DEEP = b'{"who":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
BEGUN = json.dumps(PLANNED[1]).encode()
END = b'{"verified":true,"has_findings":false,"results":[]}'
FIRST = line_of(0, Event.PLANNED, BEGUN, GENESIS_HASH)
FORGED: dict[str, list[RecordOf]] = {
    "no JSON in the middle": chained((Event.PLANNED, BEGUN), (Event.STARTED, b'{"step":}'), (Event.STARTED, b"{}")),
    "no JSON amid one that ended": chained((Event.PLANNED, BEGUN), (Event.DONE, b'{"step":}'), (Event.FINISHED, END)),
    "no JSON first": chained((Event.PLANNED, b'{"intent":}'), (Event.STARTED, b'{"step":"drain"}')),
    "nested without end": chained((Event.PLANNED, DEEP), (Event.STARTED, b'{"step":"drain"}')),
    "nested without end in the middle": chained((Event.PLANNED, BEGUN), (Event.STARTED, DEEP), (Event.STARTED, b"{}")),
    "no step": chained((Event.PLANNED, BEGUN), (Event.STARTED, b"{}")),
    "no verdict": chained((Event.PLANNED, BEGUN), (Event.FINISHED, b"{}")),
    "no link": chained((Event.PLANNED, BEGUN), (Event.LINK_GIVEN_UP, b'{"why":"x"}')),
    "no results": chained((Event.PLANNED, BEGUN), (Event.FINISHED, END.replace(b"[]", b"[7]"))),
    "no object": chained((Event.PLANNED, b"7")),
    **{
        f"an intent that is {value}": chained((Event.PLANNED, json.dumps({"intent": value, "who": "ann"}).encode()))
        for value in (None, 7, "x", ["x"])
    },
    "names that are none": chained((Event.PLANNED, BEGUN.replace(b'["east-west"]', b"7"))),
    **{f"{name} that are none": forged_intent(name, 7) for name in (*NAMES, *TEXTS, *FLAGS)},
    **{f"no name in {name}": forged_intent(name, [7]) for name in NAMES},
    **{f"{name} that is text": forged_intent(name, "x") for name in ("timestamp_ms", "drain_timeout_s", *FLAGS)},
    **{f"{name} that is yes": forged_intent(name, True) for name in ("timestamp_ms", "drain_timeout_s", *TEXTS)},
    **{f"{name} beyond all": forged_intent(name, 10**400) for name in ("timestamp_ms", "drain_timeout_s")},
    "a drain that never ends": forged_intent("drain_timeout_s", float("inf")),
    "a drain of no number": forged_intent("drain_timeout_s", float("nan")),
    "a time of 5,000 digits": chained((Event.PLANNED, BEGUN), at_ms="9" * 5_000),
    "a time that is text": chained((Event.PLANNED, BEGUN), at_ms='"noon"'),
    "an id that is no text": [(b'["bad",0,0,1]', FIRST.replace(b"bad", b"\xff"))],
    "an event that is a list": [(b'["bad",0,0,1]', FIRST.replace(b'"planned"', b"[1]"))],
    "a key nested without end": [(b"[" * 200_000, b"{}"), *chained((Event.PLANNED, b"7"))],
    "parts without number": [(b'["bad",0,0,99999999999]', b"{}"), *chained((Event.PLANNED, b"7"))],
    "another one's lines": [(key.replace(b"good", b"bad"), value) for key, value in good() if key],
    "a time beyond all": [*chained((Event.PLANNED, b"7")), Lease("mallory", NOW_MS * 1_000_000).record("bad")],
    "heard of for years": [*chained((Event.PLANNED, b"7")), Lease("mallory", NOW_MS * 2).record("bad")],
    "a newer version's": [(b'["bad",0,0,1]', json.dumps({"v": 99}).encode()), Lease("mallory", NOW_MS).record("bad")],
}


def test_no_field_of_an_intent_is_taken_unseen() -> None:
    others = {"operation", "timestamp_ms", "drain_timeout_s"}
    assert {*NAMES, *TEXTS, *FLAGS, *others} == INTENT_FIELDS


@pytest.mark.parametrize("name", FORGED)
def test_it_stops_no_operation_of_others_and_is_named(name: str) -> None:
    operations = read_operations([*FORGED[name], *good()])
    refuse_second(operations, OTHERS, NOW_MS + 1_000)
    another = Link("another", Site(OTHERS[0], "127.0.0.1:9"), Site(OTHERS[1], "127.0.0.1:9"), (".*",))
    assert under_way(another, operations, NOW_MS + 1_000) == ""
    assert [log.operation_id for log in to_forget(operations, OTHERS, 0)] in ([], ["good"])
    assert is_verified(operations["good"])
    assert standing_of(operations["good"], NOW_MS).state is OperationState.VERIFIED
    told = standing_of(operations["bad"], NOW_MS + 1_000)
    assert told.state in (OperationState.DAMAGED, OperationState.NEWER_VERSION)
    assert not (is_verified(operations["bad"]) and name != "no JSON amid one that ended")
    moved_along("east-west", LinkRun(RunState.PROMOTED, "bad", 1), operations)


@pytest.mark.parametrize("name", FORGED)
def test_whoever_asks_for_it_is_told_that_it_is_damaged_and_what_goes_on(name: str) -> None:
    log = read_operations(FORGED[name])["bad"]
    if log.is_ended or log.newer_version:
        return
    with pytest.raises(JournalDamaged, match="bad") as told:
        intent_of(log)
    assert "farshore switchover" in told.value.hint


def test_one_that_is_damaged_stops_those_between_its_own_sites_while_it_is_heard_of() -> None:
    """Its intent cannot be read; its lease says where it goes."""
    found = read_operations([*FORGED["no JSON first"], Lease("ann", NOW_MS, SITES).record("bad")])
    refuse_second(found, OTHERS, NOW_MS + 1_000)
    with pytest.raises(OperationUnderWay, match="bad"):
        refuse_second(found, SITES, NOW_MS + 1_000)
    refuse_second(found, SITES, NOW_MS + 60_000)


def test_one_whose_first_entry_is_on_its_way_stops_a_second_one_between_its_sites() -> None:
    long = JournalEntry(0, NOW_MS, "long", Event.PLANNED, {"text": "x" * 2**20, "who": "ann"}, GENESIS_HASH)
    found = read_operations([Lease("ann", NOW_MS, SITES).record("long"), *long.records()[:1]])
    with pytest.raises(OperationUnderWay, match="long"):
        refuse_second(found, SITES, NOW_MS + 1_000)


def spelled_otherwise(entry: JournalEntry) -> bytes:
    return json.dumps(json.loads(entry.line()), indent=1, ensure_ascii=False).encode()


def test_the_chain_is_over_what_is_stored_however_it_is_spelled() -> None:
    first = JournalEntry(0, NOW_MS, "one", Event.PLANNED, {"who": "é"}, GENESIS_HASH)
    line = spelled_otherwise(first)
    assert hash_of(line) != first.hash()
    log = read_operations([(b'["one",0,0,1]', line)])["one"].whole()
    assert log.next_hash == hash_of(line)
    by_value = JournalEntry(1, NOW_MS, "one", Event.STARTED, {"step": "drain"}, first.hash())
    found = read_operations([(b'["one",0,0,1]', line), *by_value.records()])["one"]
    assert found.damage, "the same value is not the same line"


async def test_who_takes_up_what_was_spelled_otherwise_does_not_break_its_chain(tmp_path: Path) -> None:
    """The next entry named the hash of another spelling, and the journal was damaged from then on."""
    async with running_broker(tmp_path / "west") as address, Cluster(Site("west", address)) as west:
        writer, _ = await claim(west, SITES, lambda _: None)
        line = spelled_otherwise(JournalEntry(0, NOW_MS, "one", *PLANNED, GENESIS_HASH))
        await append(west, WHERE, encode_batch([Record(0, NOW_MS, b'["one",0,0,1]', line)]))
        log: OperationLog = (await load_operations(west))["one"].whole()
        journal = OperationJournal(west, "one", "ben", writer, SITES, log)
        await journal.record(Event.TAKEN_UP, {"who": "ben"})
        found = (await load_operations(west))["one"].whole()
        assert [entry.event for entry in found.entries] == [Event.PLANNED, Event.TAKEN_UP]
