"""What a watch makes of audit after audit: pure functions of a run's document, and the file that it goes on from.

What is proved stands in the link's proof (`proof.py`), which each run carries on. Here is the rest of what must outlast
the process: since when nothing more was proved, and what was told already.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter

from monitoring import limits
from monitoring.audit.files import replace_file
from monitoring.audit.groups import GroupVerdict
from monitoring.audit.link_file import read_link_file
from monitoring.audit.missing_rights import HINT_TO_GIVE
from monitoring.audit.model import AuditVerdict
from monitoring.audit.reasons import Reason

VERSION: Final = 1
OTHER_TOPICS: Final = "(others)"
"""No topic's name: it has brackets."""
NAMED_IN_A_LINE: Final = 3
GROUP: Final = "group "
"""What the text of a group's difference begins with; a topic's has no space before its partition."""
RECORDS_NOT_LISTED: Final = "records that are not listed"
OFFSETS_NOT_LISTED: Final = "offsets of groups that are not listed"
"""What the text of a list's rest ends with, behind its number."""

Document: TypeAlias = Mapping[str, Any]
"""What `as_document` gives of a run."""


@dataclass(frozen=True, slots=True)
class WatchState:
    """`proved_at_ms`: the freeze of the newest audit that found no difference; None: there was none.

    `verdict` is the newest audit's. `told` are the differences that it found, each as a text, and `unseen` those of
    earlier ones where it could not look again; `told_runs` the newest runs that found one which none before had.
    `missing_rights` are those that the newest audit lacked.
    """

    link: str
    proved_at_ms: int | None = None
    verdict: AuditVerdict | None = None
    told: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    told_runs: tuple[str, ...] = ()
    missing_rights: tuple[str, ...] = ()
    version: int = VERSION


def after_run(state: WatchState, document: Document) -> tuple[WatchState, list[str]]:
    """The state behind a run, and the lines that say what is new in it: none where it said what the one before did."""
    run_id, verdict = document["run_id"], AuditVerdict(document["verdict"])
    known, found = (*state.told, *state.unseen), tuple(differences(document))
    new = [text for text in found if text not in known]
    before = [text for text in known if text not in found]
    unseen = tuple(_not_looked_at(before, found, document))
    gone = len(before) - len(unseen)
    lines = []
    if verdict is not state.verdict:
        lines.append(f"{_words(verdict)}, {document['coverage']['percent']:g} % compared (run {run_id})")
    if new:
        named = "; ".join(new[:NAMED_IN_A_LINE])
        more = f"; and {len(new) - NAMED_IN_A_LINE:,} more" if len(new) > NAMED_IN_A_LINE else ""
        lines.append(f"{len(new):,} new {_noun(len(new))}: {named}{more}; see: farshore audit show {run_id}")
    if gone:
        lines.append(f"{gone:,} {_noun(gone)} told before {'is' if gone == 1 else 'are'} not there any more")
    if set(unseen) - set(state.unseen):
        lines.append(f"{len(unseen):,} {_noun(len(unseen))} told before could not be looked at again: {unseen[0]}")
    missing = tuple(_right(one) for one in document["missing_rights"])
    lines += [f"farshore lacks {right}: {HINT_TO_GIVE}" for right in missing if right not in state.missing_rights]
    told_runs = (*state.told_runs, run_id)[-limits.AUDIT_WATCH_TOLD_RUNS_KEPT :] if new else state.told_runs
    is_proved = verdict.is_equal and not unseen
    proved_at_ms = at_ms(document["frozen_at"]) if is_proved else state.proved_at_ms
    behind = replace(state, proved_at_ms=proved_at_ms, verdict=verdict, told=found, unseen=unseen, told_runs=told_runs)
    return replace(behind, missing_rights=missing), lines


def _not_looked_at(told: Iterable[str], found: Iterable[str], document: Document) -> Iterator[str]:
    """Of the differences that an earlier run told those that this one, with what it `found`, can say nothing of."""
    left_out = (item for item in document["not_compared"] if Reason(item["reason"]).hides_records)
    hidden = {f"{item['topic']}:{item['partition']}" for item in left_out}
    groups = document["groups"] or {"told": [], "offsets_told": 1, "not_listed": ""}  # none asked for: all are unseen
    is_cut = bool(groups["not_listed"]) or _hides_due(groups)
    unknown = {_of_group(item) for item in groups["told"] if item["verdict"] == GroupVerdict.UNKNOWN}
    rests = {text.partition(" ")[2] for text in found}
    for text in told:
        place, _, rest = text.partition(" ")
        if text.startswith(GROUP):
            is_hidden = is_cut or text.rpartition(" ")[0] in unknown
        elif rest in (RECORDS_NOT_LISTED, OFFSETS_NOT_LISTED):  # another number stands in its place
            is_seen = not hidden if rest == RECORDS_NOT_LISTED else not (is_cut or unknown)
            is_hidden = not is_seen and rest not in rests
        else:
            is_hidden = place in hidden
        if is_hidden:
            yield text


def _hides_due(groups: Mapping[str, Any]) -> bool:
    """Whether the list ends before all that the link carries over: what only the target has comes last, and says
    nothing of that.
    """
    told = groups["told"]
    is_whole = groups["offsets_told"] <= len(told)
    return not is_whole and not (told and told[-1]["verdict"] == GroupVerdict.MISSING_AT_SOURCE)


def differences(document: Document) -> Iterator[str]:
    """What makes a run's verdict `differs` or `moved`, each as a text that is the same in the next run.

    Of lists that are cut the rest is one difference, which is another one when its number changes.
    """
    for item in document["differences"]:
        offsets = f"source offset {_offset(item['source_offset'])}, target offset {_offset(item['target_offset'])}"
        yield f"{item['topic']}:{item['partition']} {item['kind']} ({offsets})"
    unlisted = sum(document["differences_found"].values()) - len(document["differences"])
    if unlisted > 0:
        yield f"{unlisted:,} {RECORDS_NOT_LISTED}"
    groups = document["groups"] or {"told": [], "offsets_differing": 0}
    listed = [item for item in groups["told"] if item["is_finding"]]
    for item in listed:
        yield f"{_of_group(item)} {item['verdict']}"
    if groups["offsets_differing"] > len(listed):
        yield f"{groups['offsets_differing'] - len(listed):,} {OFFSETS_NOT_LISTED}"
    for item in document["not_compared"]:
        if Reason(item["reason"]).is_finding:
            yield f"{item['topic']}:{item['partition']} {item['side']} {item['reason']}"


def _right(item: Mapping[str, Any]) -> str:
    return f"{item['operation']} on the {item['resource']} {item['name']} at {item['site']}"


def _of_group(item: Mapping[str, Any]) -> str:
    return f"{GROUP}{item['group']} {item['topic']}:{item['partition']}"


def unproved_offsets(document: Document) -> dict[str, int]:
    """By topic the source's committed offsets behind the last one that is proved, at the run's freeze.

    AUDIT_WATCH_TOPICS topics, those with the most; the sum of all others is under OTHER_TOPICS.
    """
    found: dict[str, int] = {}
    for frozen, result in zip(document["frozen"], document["partitions"], strict=True):
        start, end = frozen["source"]
        proved = [start, *(part["source"][1] for part in result["proved"])]
        if AuditVerdict(result["verdict"]).is_equal:
            proved.append(result["source"][1])
        found[frozen["topic"]] = found.get(frozen["topic"], 0) + max(0, end - max(proved))
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    kept, others = ordered[: limits.AUDIT_WATCH_TOPICS], ordered[limits.AUDIT_WATCH_TOPICS :]
    return dict(kept) | ({OTHER_TOPICS: sum(number for _, number in others)} if others else {})


def run_id_at(link: str, now_ms: int) -> str:
    """The name of a run of a watch, which no run of another command has by itself."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{link}-watch-{moment}.{now_ms % 1000:03d}Z"


def runs_to_trim(found: Collection[str], ended: Collection[str], state: WatchState) -> list[str]:
    """Of the run ids that are there those of the link's watch that are not kept, the oldest first.

    AUDIT_WATCH_RUNS_KEPT of those that have `ended` are, and what `told_runs` names. Runs of other links and other
    commands are never trimmed.
    """
    ours = re.compile(rf"{re.escape(state.link)}-watch-\d{{8}}T\d{{6}}\.\d{{3}}Z")
    runs = sorted(name for name in {*found, *ended} if ours.fullmatch(name))
    kept = [name for name in runs if name in ended][-limits.AUDIT_WATCH_RUNS_KEPT :]
    return [name for name in runs if name not in {*kept, *state.told_runs}]


def at_ms(text: str) -> int:
    """Unix milliseconds of a document's time."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _words(verdict: AuditVerdict) -> str:
    return verdict.value.replace("_", " ")


def _noun(number: int) -> str:
    return "difference" if number == 1 else "differences"


def _offset(found: int | None) -> str:
    return "none" if found is None else str(found)


_FILE: Final = TypeAdapter(WatchState)


def write_state(state: WatchState, directory: Path) -> None:
    """Keep it for the next run, of this process or of another one. Raises OSError."""
    replace_file(state_path(directory, state.link), _FILE.dump_json(state, indent=1).decode())


def read_state(directory: Path, link: str) -> WatchState:
    """Empty where there is none. Raises AuditResultDamaged."""
    hint = "remove it: differences will be told again, and the age of the proof begins with the next audit"
    state = read_link_file(state_path(directory, link), _FILE, VERSION, "the state of a watch", hint)
    return WatchState(link) if state is None else state


def state_path(directory: Path, link: str) -> Path:
    """Where it stands."""
    return directory / "watch" / f"{link}.json"
