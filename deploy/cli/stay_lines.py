"""What an operation leaves at its source, in lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from deploy.cli.late_lines import OTHERS_SHOWN
from deploy.cli.lines import filled
from deploy.cli.tables import counted
from failover.planning.staying import StayReason

_WORDS = {
    StayReason.OTHER_SITES: "it goes between other sites",
    StayReason.NOT_SELECTED: "it was not asked for",
    StayReason.ALREADY_MOVED: "it was moved before",
    StayReason.SOURCE_ALONE: "it was moved before, and what came to its source since is there alone, undecided",
    StayReason.REFUSED: "refused",
    StayReason.NOT_KNOWN: "not known",
    StayReason.NOT_CARRIED: "no link between the two sites carries it",
    StayReason.NOT_NAMED: "--group does not name it; links that go carry it no further",
    StayReason.NO_OFFSETS: "it has no committed offset in a topic that goes",
    StayReason.LINK_STAYS: "it reads along a link that stays",
    StayReason.IN_PART: "it goes in part, and also reads along a link that stays",
    StayReason.GROUP_NOT_SELECTED: "it has offsets in topics that go, but the link's `groups` do not select it",
    StayReason.GROUP_NOT_SELECTED_NOW: "the mirror carried it, but the link's `groups` do not select it now; at the "
    "target it may stand where that last brought it",
    StayReason.OTHER_TOPICS: "it goes, but its offsets in topics that do not go stay",
    StayReason.LEFT: "where it goes on is not known, which was consented to",
}


def tell_stays(stays: Iterable[Mapping[str, Any]], source: str, *, to_stderr: bool) -> None:
    """Line by line, those of one kind and reason together."""
    for line in stay_lines(stays, source):
        click.echo(filled(line), err=to_stderr)


def stay_lines(stays: Iterable[Mapping[str, Any]], source: str) -> Iterable[str]:
    together: dict[tuple[str, StayReason, str], list[str]] = {}
    for stay in stays:
        together.setdefault((stay["kind"], StayReason(stay["reason"]), stay["detail"]), []).append(stay["subject"])
    if together:
        yield f"not moved from {source} now:"
    in_part = [key for key in together if key[1] is StayReason.OTHER_TOPICS]
    unsaid = frozenset(in_part[OTHERS_SHOWN:])
    for (kind, reason, detail), subjects in together.items():
        if (kind, reason, detail) not in unsaid:
            shown = _some(subjects)
            told = _some(detail.split(", ")) if reason is StayReason.OTHER_TOPICS else detail
            why = _WORDS[reason] + (f" ({told})" if told else "")
            yield f"- {kind if shown else kind + 's'}{' ' if shown else ''}{shown}: {why}"
    if unsaid:
        more = counted(sum(len(together[key]) for key in unsaid), "more group")
        yield f"- {more} with offsets in topics that do not go: -o json names each"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - OTHERS_SHOWN:,} more" if len(names) > OTHERS_SHOWN else ""
    return ", ".join(names[:OTHERS_SHOWN]) + more
