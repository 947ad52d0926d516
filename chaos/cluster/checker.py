"""What a cluster that loses nothing acknowledged never shows to its clients, found in a history. Pure.

A send or a commit whose outcome is unknown may have taken effect or not: its records may be there, but not twice, and
all of a transaction or none.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from broker.wire.vocabulary import TopicPartition
from chaos.cluster.history import ClusterHistory, Ending, Log, Seen, Send
from chaos.history import Outcome


class Violation(StrEnum):
    """By the words that Jepsen's tests of logs use, as far as there are such."""

    LOST = "lost"
    """Acknowledged, committed or read once, and not there in the end."""
    DUPLICATED = "duplicated"
    """One value at two offsets, or two committed ones made from the same record."""
    REORDERED = "reordered"
    """Of one writer, acknowledged, and behind what it sent later."""
    STALE = "stale"
    """The log's end was told without what had been acknowledged before the question."""
    ABORTED = "aborted"
    """Of a transaction that was aborted, and seen by who reads committed records alone."""
    NON_MONOTONIC = "non_monotonic"
    """A reader was led back."""
    SKIPPED = "skipped"
    """A reader was led past a record that is there."""
    INVENTED = "invented"
    """Never sent there."""
    PARTIAL = "partial"
    """A part of a transaction is committed and another part is not."""
    DIVERGED = "diverged"
    """Two values at one offset."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`value` and `offset` are of the record that shows it."""

    violation: Violation
    where: TopicPartition
    offset: int | None
    value: int | None
    text: str

    def __str__(self) -> str:
        at = "" if self.offset is None else f" at {self.offset}"
        value = "" if self.value is None else f" {self.value}"
        return f"{self.violation}: {self.where}{at}{value}: {self.text}"


def find_violations(history: ClusterHistory) -> list[Finding]:
    """All of them; none for what a correct cluster may show."""
    return list(_Checker(history).findings())


class _Checker:
    def __init__(self, history: ClusterHistory) -> None:
        self.history = history
        self.sent = {send.value: send for send in history.sends}

    def findings(self) -> Iterator[Finding]:
        yield from self._invented()
        yield from self._lost()
        yield from self._unread_in_the_end()
        yield from self._duplicated()
        yield from self._made_twice()
        yield from self._unmade()
        yield from self._reordered()
        yield from self._stale()
        yield from self._aborted()
        yield from self._partial()
        yield from self._diverged()
        yield from self._polls()
        yield from self._skipped_by_groups()

    def _logs(self) -> Iterator[tuple[TopicPartition, Log]]:
        yield from self.history.whole.items()
        yield from self.history.committed.items()

    def _readings(self) -> Iterator[tuple[TopicPartition, int, int, str]]:
        """(where, offset, value, by whom)."""
        for where, log in self._logs():
            for offset, value in log.items():
                yield where, offset, value, "the last reading"
        for seen in self.history.seen:
            yield seen.where, seen.offset, seen.value, seen.reader

    def _is_committed(self, send: Send) -> bool:
        return send.transaction is None or self.history.transactions[send.transaction] is Ending.COMMITTED

    # -- what is there

    def _invented(self) -> Iterator[Finding]:
        told = set()
        for where, offset, value, who in self._readings():
            send = self.sent.get(value)
            if (send is None or send.where != where) and (where, offset) not in told:
                told.add((where, offset))
                text = "nobody sent it" if send is None else f"it was sent to {send.where}"
                yield Finding(Violation.INVENTED, where, offset, value, f"{text}; read by {who}")

    def _lost(self) -> Iterator[Finding]:
        whole = {(where, value) for where, log in self.history.whole.items() for value in log.values()}
        committed = {(where, value) for where, log in self.history.committed.items() for value in log.values()}
        for send in self.history.sends:
            acknowledged = send.outcome is Outcome.ACKNOWLEDGED
            in_committed = send.transaction is not None and self._is_committed(send)
            where = (send.where, send.value)
            if (acknowledged or in_committed) and where not in whole:
                text = "acknowledged" if acknowledged else "of a committed transaction"
                yield Finding(Violation.LOST, send.where, send.offset, send.value, f"{text} to {send.writer}")
            elif self._is_committed(send) and where in whole and where not in committed:
                text = "it is there, and not for who reads committed records"
                yield Finding(Violation.LOST, send.where, send.offset, send.value, text)

    def _unread_in_the_end(self) -> Iterator[Finding]:
        """What a reader was given stays."""
        told: set[tuple[TopicPartition, int, bool]] = set()
        for seen in self.history.seen:
            only_committed = seen.reader in self.history.committed_readers
            logs = self.history.committed if only_committed else self.history.whole
            if (seen.where, seen.offset, only_committed) in told or seen.value not in self.sent:
                continue
            if seen.offset not in logs.get(seen.where, {}):
                told.add((seen.where, seen.offset, only_committed))
                yield Finding(Violation.LOST, seen.where, seen.offset, seen.value, f"{seen.reader} was given it")

    def _duplicated(self) -> Iterator[Finding]:
        for where, log in self.history.whole.items():
            first: dict[int, int] = {}
            for offset, value in sorted(log.items()):
                if first.setdefault(value, offset) != offset:
                    yield Finding(Violation.DUPLICATED, where, offset, value, f"it is at {first[value]}, too")

    def _unmade(self) -> Iterator[Finding]:
        """As `_skipped_by_groups`, of those who made records from others."""
        made = {self.sent[v].origin for log in self.history.committed.values() for v in log.values() if v in self.sent}
        for where in self.history.made_from:
            log = self.history.committed.get(where, {})
            last = max((offset for offset, value in log.items() if value in made), default=-1)
            for offset, value in log.items():
                if offset < last and value not in made:
                    yield Finding(Violation.SKIPPED, where, offset, value, "nothing was made from it")

    def _made_twice(self) -> Iterator[Finding]:
        first: dict[int, int] = {}
        for where, log in self.history.committed.items():
            for offset, value in log.items():
                send = self.sent.get(value)
                if send is None or send.origin is None:
                    continue
                if first.setdefault(send.origin, value) != value:
                    text = f"made from {send.origin}, as {first[send.origin]} was"
                    yield Finding(Violation.DUPLICATED, where, offset, value, text)

    def _reordered(self) -> Iterator[Finding]:
        """By where the records are, not by where they were said to be; of a duplicate the first one counts."""
        at: dict[tuple[TopicPartition, int], int] = {}
        for where, log in self.history.whole.items():
            for place, value in sorted(log.items()):
                at.setdefault((where, value), place)
        highest: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        for send in self.history.sends:
            offset = at.get((send.where, send.value))
            if send.outcome is not Outcome.ACKNOWLEDGED or offset is None:
                continue
            before, earlier = highest.get((send.writer, send.where), (-1, -1))
            if offset < before:
                text = f"{send.writer} sent it after {earlier}, which is at {before}"
                yield Finding(Violation.REORDERED, send.where, offset, send.value, text)
            else:
                highest[send.writer, send.where] = (offset, send.value)

    # -- what was told

    def _stale(self) -> Iterator[Finding]:
        acknowledged: dict[TopicPartition, list[tuple[float, int, int]]] = defaultdict(list)
        for send in self.history.sends:
            if send.outcome is Outcome.ACKNOWLEDGED and send.offset is not None and send.done_s is not None:
                acknowledged[send.where].append((send.done_s, send.offset, send.value))
        for where in acknowledged:
            acknowledged[where].sort()
        for where, sends in acknowledged.items():
            asked = sorted((end for end in self.history.ends if end.where == where), key=lambda end: end.asked_s)
            at, (highest, newest) = 0, (-1, -1)
            for end in asked:
                while at < len(sends) and sends[at][0] < end.asked_s:
                    highest, newest = max((highest, newest), sends[at][1:])
                    at += 1
                if end.end_offset <= highest:
                    text = f"the end was told to be {end.end_offset} at {end.asked_s:.3f}, after this was acknowledged"
                    yield Finding(Violation.STALE, where, highest, newest, text)

    def _aborted(self) -> Iterator[Finding]:
        found: dict[tuple[TopicPartition, int, int], str] = {}
        for where, log in self.history.committed.items():
            found |= {(where, offset, value): "the last reading" for offset, value in log.items()}
        for seen in self.history.seen:
            if seen.reader in self.history.committed_readers:
                found.setdefault((seen.where, seen.offset, seen.value), seen.reader)
        for (where, offset, value), who in found.items():
            send = self.sent.get(value)
            if send is None or send.transaction is None:
                continue
            if self.history.transactions[send.transaction] is Ending.ABORTED:
                text = f"of transaction {send.transaction}, read by {who}"
                yield Finding(Violation.ABORTED, where, offset, value, text)

    def _partial(self) -> Iterator[Finding]:
        committed = {value for log in self.history.committed.values() for value in log.values()}
        parts: dict[int, list[Send]] = defaultdict(list)
        for send in self.history.sends:
            if send.transaction is not None:
                parts[send.transaction].append(send)
        for transaction, sends in parts.items():
            missing = [send for send in sends if send.value not in committed]
            if missing and len(missing) < len(sends) and self.history.transactions[transaction] is not Ending.ABORTED:
                text = f"{len(missing)} of the {len(sends)} records of transaction {transaction} are not committed"
                yield Finding(Violation.PARTIAL, missing[0].where, missing[0].offset, missing[0].value, text)

    def _diverged(self) -> Iterator[Finding]:
        first: dict[tuple[TopicPartition, int], tuple[int, str]] = {}
        told = set()
        acknowledged = (
            (send.where, send.offset, send.value, f"{send.writer}'s acknowledgement")
            for send in self.history.sends
            if send.offset is not None
        )
        for readings in (self._readings(), acknowledged):
            for where, offset, value, who in readings:
                other, by = first.setdefault((where, offset), (value, who))
                if other != value and (where, offset) not in told:
                    told.add((where, offset))
                    yield Finding(Violation.DIVERGED, where, offset, value, f"by {who}; but {other} by {by}")

    # -- how readers went on

    def _polls(self) -> Iterator[Finding]:
        runs: dict[tuple[str, int, TopicPartition], list[Seen]] = defaultdict(list)
        for seen in self.history.seen:
            runs[seen.reader, seen.run, seen.where].append(seen)
        for (reader, _run, where), polled in runs.items():
            logs = self.history.committed if reader in self.history.committed_readers else self.history.whole
            offsets = sorted(logs.get(where, {}))
            place = {offset: index for index, offset in enumerate(offsets)}
            for before, after in itertools.pairwise(polled):
                if after.offset <= before.offset:
                    text = f"{reader} was given it behind {before.offset}"
                    yield Finding(Violation.NON_MONOTONIC, where, after.offset, after.value, text)
                elif place.get(after.offset, 0) - place.get(before.offset, len(offsets)) > 1:
                    passed = offsets[place[before.offset] + 1]
                    text = f"{reader} went from {before.offset} to {after.offset}"
                    yield Finding(Violation.SKIPPED, where, passed, logs[where][passed], text)

    def _skipped_by_groups(self) -> Iterator[Finding]:
        """What lies before the last record that a group was given; how far it came is not judged here."""
        for group, members in self.history.groups.items():
            seen = {(seen.where, seen.offset) for seen in self.history.seen if seen.reader in members}
            for where, log in self.history.committed.items():
                last = max((offset for place, offset in seen if place == where), default=-1)
                for offset, value in log.items():
                    if offset < last and (where, offset) not in seen:
                        yield Finding(Violation.SKIPPED, where, offset, value, f"no reader of {group} was given it")
