"""The operations journal as values: what was decided, when, by whom, on what evidence, and how it ended.

It stands in one compacted topic at the target cluster, so that any machine can read it and go on. An entry is a line of
JSON that carries the SHA-256 of the entry before it: one that was changed, dropped or reordered afterwards is found. A
line that one record does not take is cut into parts; until all of them are there the entry was never made. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from failover.errors import JournalDamaged, NewerVersion
from failover.journal.lines import fields_of, read_json

JOURNAL_VERSION: Final = 5
"""That is written; earlier ones are read. 2: an intent may name topics; 3: it may move no groups; 4: it may leave
partitions; 5: an operation may be a failback, and a switchover a step of one.
"""
GENESIS_HASH: Final = "0" * 64
PART_MAX_BYTES: Final = 512 * 1024
"""Of a line in one record: Kafka's topics take 1 MiB unless they are told otherwise."""
BATCH_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of an entry in one batch, before compression: who compacts the topic opens it."""
LEASE_KEY: Final = "lease"
LATE_DENIALS: Final = "late_denials"
"""In an entry's detail: topics (regular expressions) of which ACLs that deny to write may come, from that entry on."""
AT_MAX_MS: Final = 253_402_300_799_999
"""The end of year 9999: what was said later, by its own clock, nobody has said."""


class Event(StrEnum):
    """What an entry says."""

    PLANNED = "planned"
    """The first one: what was asked for, by whom, and the plan that was consented to."""
    STARTED = "started"
    DONE = "done"
    NOT_FENCED = "not_fenced"
    GROUPS_VERIFIED = "groups_verified"
    """The groups stand at the target, at these offsets, but for what was left of some: it is there before anybody is
    told that applications may start.
    """
    LINK_GIVEN_UP = "link_given_up"
    """One of several links stays as it is, the others go on."""
    TAKEN_UP = "taken_up"
    """Another process goes on with it."""
    CUT_SHORT = "cut_short"
    """It ended behind the fence, and can be gone on with."""
    GIVING_UP = "giving_up"
    GIVEN_UP = "given_up"
    """Before the fence; nothing stays changed."""
    ABORTED = "aborted"
    FINISHED = "finished"
    """It ran to its end, verified or not."""


ENDS: Final = frozenset({Event.GIVEN_UP, Event.ABORTED, Event.FINISHED})
"""After these nobody goes on with it."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """`event` is what happened at `at_ms` (Unix time, by the clock of who wrote it), `detail` its evidence. `version`:
    of the journal, as who wrote it had it.
    """

    sequence: int
    at_ms: int
    operation_id: str
    event: str
    detail: Mapping[str, Any]
    previous_hash: str
    version: int = JOURNAL_VERSION

    def line(self) -> str:
        return json.dumps(
            {
                "v": self.version,
                "sequence": self.sequence,
                "at_ms": self.at_ms,
                "operation_id": self.operation_id,
                "event": self.event,
                "detail": dict(self.detail),
                "previous_hash": self.previous_hash,
            },
            sort_keys=True,
            separators=(",", ":"),
        )

    def hash(self) -> str:
        return hash_of(self.line().encode())

    def records(self, line: bytes | None = None) -> list[tuple[bytes, bytes]]:
        """Keys and values that say it; `line`: its line, where that is at hand."""
        line = self.line().encode() if line is None else line
        parts = [line[at : at + PART_MAX_BYTES] for at in range(0, len(line), PART_MAX_BYTES)]
        return [(_key(self.operation_id, self.sequence, at, len(parts)), part) for at, part in enumerate(parts)]


@dataclass(frozen=True, slots=True)
class Lease:
    """Who carries the operation on, from which site to which ("": an earlier version, which does not say), and when
    that was last said (Unix time, that machine's clock).
    """

    who: str
    at_ms: int
    between: tuple[str, str] = ("", "")

    def record(self, operation_id: str) -> tuple[bytes, bytes]:
        said = {"v": JOURNAL_VERSION, "who": self.who, "at_ms": self.at_ms, "between": self.between}
        return _key(operation_id, LEASE_KEY), _dump(said)


@dataclass(frozen=True, slots=True)
class OperationLog:
    """One operation's entries, in order, checked against the chain; `damage` says what does not fit behind them.
    `keys`: of all the records that speak of it. `newer_version`: of the journal, which wrote what comes behind them; 0:
    none did. `hashes`: of the entries' lines as they are stored, which is how the next one names them.
    """

    operation_id: str
    entries: tuple[JournalEntry, ...]
    lease: Lease | None = None
    damage: str = ""
    keys: tuple[bytes, ...] = ()
    newer_version: int = 0
    hashes: tuple[str, ...] = ()

    @property
    def is_ended(self) -> bool:
        return any(entry.event in ENDS for entry in self.entries)

    @property
    def next_hash(self) -> str:
        return self.hashes[-1] if self.hashes else GENESIS_HASH

    def check_version(self) -> None:
        """Raises NewerVersion."""
        if self.newer_version:
            raise NewerVersion(
                f"a newer version of farshore wrote the journal of {self.operation_id} (version {self.newer_version}; "
                f"this one reads {JOURNAL_VERSION})"
            )

    def whole(self) -> OperationLog:
        """Itself. Raises JournalDamaged, NewerVersion."""
        self.check_version()
        if self.damage or not self.entries:
            said = self.damage or "it has no entry"
            raise JournalDamaged(f"the journal of {self.operation_id} is damaged: {said}")
        return self


def as_told(log: OperationLog) -> OperationLog:
    """The log up to the first entry that does not say what one of its kind must: whoever writes the hashes, too, can
    have the chain fit around anything. Opens the evidence of all, so that it is for one that is gone on with, or shown.
    """
    for at, entry in enumerate(log.entries):
        if not is_sound(entry):
            damage = f"entry {entry.sequence} cannot be read, or does not say what it must"
            return replace(log, entries=log.entries[:at], hashes=log.hashes[:at], damage=damage)
    return log


def has_lost(before: OperationLog, now: OperationLog) -> bool:
    """Whether the target has lost of it what it told before: entries, or that anybody carries it on."""
    if now.hashes[: len(before.hashes)] != before.hashes:
        return True
    return before.lease is not None and now.lease is None and len(now.entries) <= len(before.entries)


def has_gone_back(before: OperationLog, now: OperationLog) -> bool:
    """Whether it tells less than before, or who carries it on said so at an earlier time than he had: then the target
    has lost what he said last, or the clock of his machine went back.
    """
    was, lease = before.lease, now.lease
    is_earlier = was is not None and lease is not None and lease.who == was.who and lease.at_ms < was.at_ms
    return has_lost(before, now) or (is_earlier and len(now.entries) <= len(before.entries))


def check_not_gone_back(before: OperationLog, now: OperationLog) -> None:
    """Raises JournalDamaged."""
    name = before.operation_id
    if has_lost(before, now):
        raise JournalDamaged(
            f"the journal of {name} is not what it was a moment ago: its site has lost the last of it; "
            "nothing more was changed",
            hint=f"`farshore operation show {name}` says what is left; the brokers' logs, why",
        )
    if has_gone_back(before, now):
        raise JournalDamaged(
            f"who carries {name} on says so at an earlier time than a moment ago: its site has lost what he "
            "said last, or that machine's clock went back; nothing more was changed",
            hint=f"`farshore operation wait {name}` watches whether it is carried on",
        )


def hash_of(line: bytes) -> str:
    """Of an entry's line: what the next one names."""
    return hashlib.sha256(line).hexdigest()


def read_operations(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[str, OperationLog]:
    """What the topic's records say, by operation id, in the order in which the operations began.

    Damage to one operation is that one's; records that are nobody's entry are passed over. One of which every
    record was taken back is not there any more.
    """
    folding = OperationsFolding()
    for key, value in records:
        folding.take(key, value)
    return folding.operations()


class OperationsFolding:
    """As `read_operations`, record by record: an operation of which no more has come is not put together again."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[bytes, None]] = {}
        self._parts: dict[str, dict[tuple[int, int], dict[int, bytes]]] = {}
        self._leases: dict[str, Lease] = {}
        self._logs: dict[str, OperationLog] = {}

    def take(self, key: bytes | None, value: bytes | None) -> None:
        match read_json(key):
            case [str(operation_id), "lease"]:
                lease = _lease(value)
                if lease is not None:
                    self._logs.pop(operation_id, None)
                    self._leases[operation_id] = lease
                    self._keys.setdefault(operation_id, {})[key or b""] = None
            case [str(operation_id), int(sequence), int(part), int(count)] if sequence >= 0 and 0 <= part < count:
                self._logs.pop(operation_id, None)
                found = self._parts.setdefault(operation_id, {}).setdefault((sequence, count), {})
                found.pop(part, None)
                self._keys.setdefault(operation_id, {}).pop(key or b"", None)
                if value is not None:
                    found[part] = value
                    self._keys[operation_id][key or b""] = None

    def operations(self) -> dict[str, OperationLog]:
        there = {operation_id: found for operation_id, found in self._parts.items() if any(found.values())}
        for operation_id in there.keys() - self._logs.keys():
            log = _operation(operation_id, there[operation_id], self._leases.get(operation_id))
            self._logs[operation_id] = replace(log, keys=tuple(self._keys[operation_id]))
        return {operation_id: self._logs[operation_id] for operation_id in there}


def _operation(
    operation_id: str, parts: Mapping[tuple[int, int], dict[int, bytes]], lease: Lease | None
) -> OperationLog:
    """A writer that died amid an entry leaves some of its parts, beside those of who went on in its place."""
    whole: dict[int, list[bytes]] = {}
    for (sequence, count), found in parts.items():
        if len(found) == count:
            whole.setdefault(sequence, []).append(b"".join(found[part] for part in range(count)))
    entries: list[JournalEntry] = []
    hashes: list[str] = []
    damage = ""
    for sequence in range(max(whole, default=-1) + 1):
        lines = [(line, fields_of(line)) for line in whole.get(sequence, ())]
        versions = [_version(fields) for _, fields in lines]
        if versions and min(versions) > JOURNAL_VERSION:
            newer = OperationLog(operation_id, tuple(entries), lease, newer_version=min(versions), hashes=tuple(hashes))
            return as_told(newer)
        read = [(line, entry) for line, fields in lines if (entry := _entry(fields)) is not None]
        expected = (operation_id, sequence, hashes[-1] if hashes else GENESIS_HASH)
        fitting = [(line, one) for line, one in read if (one.operation_id, one.sequence, one.previous_hash) == expected]
        if not fitting:
            damage = f"entry {sequence} is missing, or does not follow the one before"
            break
        entries.append(fitting[-1][1])
        hashes.append(hash_of(fitting[-1][0]))
    log = OperationLog(operation_id, tuple(entries), lease, damage, hashes=tuple(hashes))
    if log.is_ended and not damage and is_sound(entries[-1]):  # megabytes of it, and nobody goes on with it
        return log
    return as_told(log)


def _version(fields: Mapping[str, Any] | None) -> int:
    """0 where it says none."""
    version = fields.get("v") if fields is not None else None
    return version if isinstance(version, int) else 0


def _entry(fields: dict[str, Any] | None) -> JournalEntry | None:
    if fields is None or not 0 < _version(fields) <= JOURNAL_VERSION:
        return None
    try:
        entry = JournalEntry(version=fields.pop("v"), **fields)
    except TypeError:
        return None
    is_text = all(type(one) is str for one in (entry.operation_id, entry.event, entry.previous_hash))
    is_number = type(entry.sequence) is int and type(entry.at_ms) is int and 0 <= entry.at_ms <= AT_MAX_MS
    return entry if is_text and is_number and isinstance(entry.detail, Mapping) else None


_SAID: Final[Mapping[str, Mapping[str, type]]] = {
    Event.STARTED: {"step": str},
    Event.DONE: {"step": str},
    Event.LINK_GIVEN_UP: {"link": str, "why": str},
    Event.GROUPS_VERIFIED: {"offsets": dict},
    Event.FINISHED: {"verified": bool, "has_findings": bool, "results": list},
}
_RESULT: Final[Mapping[str, type]] = {"link": str, "verified": bool, "differences": list, "moves": list}


def is_sound(entry: JournalEntry) -> bool:
    """Whether it says what one of its kind must, as far as others rely on it."""
    try:
        results = entry.detail.get("results", ())
        return _says(entry.detail, _SAID.get(entry.event, {})) and all(_says(one, _RESULT) for one in results)
    except (AttributeError, JournalDamaged, TypeError):
        return False


def _says(found: Mapping[str, Any], wanted: Mapping[str, type]) -> bool:
    return all(isinstance(found.get(name), kind) for name, kind in wanted.items())


def _lease(value: bytes | None) -> Lease | None:
    """Of whichever version: that somebody is heard of is understood in each."""
    match read_json(value):
        case {"at_ms": int(at_ms), **said} if 0 <= at_ms <= AT_MAX_MS:
            match said.get("between"):
                case [str(source), str(target)]:
                    return Lease(str(said.get("who", "")), at_ms, (source, target))
            return Lease(str(said.get("who", "")), at_ms)
    return None


def _key(*parts: object) -> bytes:
    return _dump(list(parts))


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
