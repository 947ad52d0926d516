"""Lines for an operator and for grep: one per event, whatever is in its fields."""

from __future__ import annotations

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.findings import resume_command
from mirror.offsets.entries import Gap, GapKind, GapStatus
from mirror.worker.events import Event, changed_only, line_sink, tell_gap

WORD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s"=]+)(?: |\n$)')


class StoppedClock:
    """Half a second after 2023-11-14 22:13:20 UTC, for ever."""

    def now_ms(self) -> int:
        return 1_700_000_000_500

    def monotonic(self) -> float:
        return 0.0

    def boottime(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody waits here, and not {seconds} s")


def line_of(event: Event, **fields: object) -> str:
    stream = io.StringIO()
    line_sink(stream, StoppedClock(), "east-west")(event, **fields)
    return stream.getvalue()


def test_a_line_says_when_which_link_and_what() -> None:
    assert line_of(Event.GAP_PASSED, topic="flights", records=3) == (
        "time=2023-11-14T22:13:20.500+00:00 link=east-west event=gap_passed topic=flights records=3\n"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", '"two words"'),
        ("", '""'),
        ("a=b", '"a=b"'),
        ('say "x"', '"say \\"x\\""'),
        ("one\ntwo", '"one\\ntwo"'),
        ("\x1b[2J", '"\\u001b[2J"'),
        ("a\u202eb", '"a\\u202eb"'),
        (None, "None"),
        (0, "0"),
    ],
)
def test_values_that_would_break_a_line_are_quoted(value: object, shown: str) -> None:
    assert line_of(Event.STARTED, detail=value).endswith(f" detail={shown}\n")


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(max_size=20), max_size=4))
def test_every_event_is_one_line_that_reads_back(fields: dict[str, str]) -> None:
    line = line_of(Event.FINDING, **{name: text for name, text in fields.items() if name != "event"})
    words = [match.groups() for match in WORD.finditer(line)]
    read = {name: json.loads(value) if value.startswith('"') else value for name, value in words[3:]}
    assert read == {name: text for name, text in fields.items() if name != "event"}
    assert line.splitlines(keepends=True) == [line]


def told_by(*calls: tuple[Event, str, str]) -> list[tuple[Event, object, object]]:
    told: list[tuple[Event, object, object]] = []

    def sink(event: Event, /, **fields: object) -> None:
        told.append((event, fields["subject"], fields["detail"]))

    tell = changed_only(sink)
    for call in calls:
        tell(*call)
    return told


def test_a_finding_is_told_once_and_again_when_it_changes_or_comes_back() -> None:
    first, second = (Event.TOPIC_FAILED, "flights", "no room"), (Event.TOPIC_FAILED, "flights", "no leader")
    assert told_by(first, first, second, second, first) == [first, second, first]


def test_subjects_and_events_do_not_silence_each_other() -> None:
    calls = [
        (Event.TOPIC_FAILED, "flights", "no room"),
        (Event.TOPIC_FAILED, "orders", "no room"),
        (Event.FINDING, "flights", "no room"),
    ]
    assert told_by(*calls, *calls) == calls


def test_a_stopped_partition_is_told_with_the_command_that_goes_on() -> None:
    gap = Gap("flights", 3, GapKind.TRUNCATED_START, 5, 9, 4, GapStatus.STOPPED, 1, "retention")
    stream = io.StringIO()
    tell_gap(line_sink(stream, StoppedClock(), "east-west"), "east-west", gap)
    assert f'hint="{resume_command("east-west", gap)}"' in stream.getvalue()
