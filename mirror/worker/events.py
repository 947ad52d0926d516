"""What a worker tells its operator: one line per event, `key=value` fields, on a stream of the caller's choice."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol, TextIO

from broker.base.clock import Clock
from mirror.findings import next_command
from mirror.offsets.entries import Gap
from mirror.offsets.hold_entries import Hold


class Event(StrEnum):
    """Everything that is worth a line."""

    STARTED = "started"
    """The link is fenced, its positions are known, records flow."""
    RESTARTING = "restarting"
    """Something was in doubt: all in flight was dropped, the position is recomputed from the target."""
    RENEWED = "renewed"
    """What the session stands on has changed (or the fence is old): the link fences anew."""
    PAUSED = "paused"
    """The target was promoted: the link waits, without writing, until an operator resumes it."""
    STOPPED = "stopped"
    """The link does not run any more in this process."""
    PARTITION_STOPPED = "partition_stopped"
    PARTITION_HELD = "partition_held"
    """It cannot be mirrored now; the others are, and it is tried again."""
    PARTITION_TAKEN_IN = "partition_taken_in"
    """It was held, or is new, or is back, and is mirrored from now on."""
    TOPIC_LEFT = "topic_left"
    """It is gone, or another one, at one of the sites: nothing more of it is read. What is there now is taken in."""
    GAP_PASSED = "gap_passed"
    TOPIC_CREATED = "topic_created"
    TOPIC_GROWN = "topic_grown"
    TOPIC_FAILED = "topic_failed"
    CONFIG_DRIFT = "config_drift"
    CONFIG_APPLIED = "config_applied"
    ACL_DRIFT = "acl_drift"
    ACL_CREATED = "acl_created"
    ACLS_FAILED = "acls_failed"
    """ACLs could not be compared, or this one could not be made. The records go on."""
    FINDING = "finding"
    GROUP_FAILED = "group_failed"
    ENDS_NOT_KEPT = "ends_not_kept"
    """Where the source's logs end cannot be written to the target now: a failover would know less."""


class EventSink(Protocol):
    """Where events go."""

    def __call__(self, event: Event, /, **fields: object) -> None: ...


def line_sink(stream: TextIO, clock: Clock, link: str) -> EventSink:
    """Events as lines: time, link, event, then the fields."""
    return lines_of(stream, clock, link=link)


def lines_of(stream: TextIO, clock: Clock, **of: str) -> Callable[..., None]:
    """A sink for any events that writes time, what they are `of`, event, then the fields; values are quoted as in JSON
    where anything in them would not stay a word, or acts on a terminal.
    """

    def write(event: StrEnum, /, **fields: object) -> None:
        at = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        words = [f"time={at}", *(f"{name}={_quoted(value)}" for name, value in of.items()), f"event={event.value}"]
        words += [f"{name}={_quoted(value)}" for name, value in fields.items()]
        stream.write(" ".join(words) + "\n")
        stream.flush()

    return write


def tell_gap(tell: EventSink, link: str, gap: Gap) -> None:
    """Say that a partition of the link stands still, why, and what lets it go on."""
    tell(
        Event.PARTITION_STOPPED,
        topic=gap.topic,
        partition=gap.partition,
        reason=gap.kind.value,
        source_from=gap.source_from,
        source_to=gap.source_to,
        detail=gap.detail,
        hint=next_command(link, gap),
    )


def tell_passed(tell: EventSink, gap: Gap) -> None:
    """Say that an accepted gap is stepped over."""
    tell(Event.GAP_PASSED, topic=gap.topic, partition=gap.partition, source_from=gap.source_from)


def tell_hold(tell: EventSink, hold: Hold) -> None:
    """Say that a partition (or a whole topic) is not mirrored for now, and why."""
    partition = "all" if hold.partition is None else hold.partition
    tell(Event.PARTITION_HELD, topic=hold.topic, partition=partition, reason=hold.reason.value, detail=hold.detail)


def changed_only(sink: EventSink) -> Callable[[Event, str, str], None]:
    """A sink for repeated findings: tells (event, subject, text) when the subject's text is not what it was."""
    told: dict[tuple[Event, str], str] = {}

    def tell(event: Event, subject: str, text: str) -> None:
        if told.get((event, subject)) != text:
            told[event, subject] = text
            sink(event, subject=subject, detail=text)

    return tell


def _quoted(value: object) -> str:
    text = str(value)
    is_plain = bool(text) and text.isprintable() and not any(sign in text for sign in ' "=')
    return text if is_plain else json.dumps(text)
