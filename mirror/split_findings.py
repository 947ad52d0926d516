"""What of a promoted link needs attention: links back that were promoted, too, and who writes where. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from broker.base.errors import FarshoreError
from broker.wire.site_role import SiteStanding
from mirror.closed_at_both import ClosedAtBoth
from mirror.link import Link
from mirror.link_finding import LinkFinding, LinkFindingKind, told_time
from mirror.split import EndSeen, LocalWrites, PromotedBack, Split
from mirror.worker.parted import SourceParting

TOPICS_NAMED: Final = 3
_END_SEEN: Final = {
    EndSeen.TOLD: "",
    EndSeen.LAST_SEEN: ". {source} did not say where its log ended when it was left, and that was last seen before: "
    "some that came before it was left may be among them, or some stamped wrongly may be missing",
    EndSeen.UNKNOWN: ". Where the log ended at {source} when it was left was not kept: what came there in the seconds "
    "after may be missing",
}


def of_backs(link: Link, backs: Sequence[PromotedBack]) -> Iterable[LinkFinding]:
    """Of two of which one was later the other one is to run again, and has the finding."""
    source, target = link.source.name, link.target.name
    for back in backs:
        if back.is_later and not back.may_run:
            text = f"link {back.link.name} was promoted since, so neither mirrors: what is written at {source} does "
            text += f"not come to {target}"
            yield LinkFinding(
                LinkFindingKind.BOTH_PROMOTED, None, None, text, f"farshore link resume --link {link.name}"
            )
        elif back.is_later is None:
            text = f"link {back.link.name} is promoted, too, and nothing says which was later: neither mirrors, and "
            text += "either site may take writes"
            yield LinkFinding(LinkFindingKind.BOTH_PROMOTED, None, None, text, _choose_site(link, back.link))


def _choose_site(link: Link, back: Link) -> str:
    """The same words whichever of the two is asked."""
    ways = sorted((one.target.name, _standby(one), other.name) for one, other in ((link, back), (back, link)))
    steps = [f"is it {stays}: {standby}, then farshore link resume --link {other}" for stays, standby, other in ways]
    return f"choose the site that stays (`farshore site role`); {'; '.join(steps)}"


def _standby(link: Link) -> str:
    """What closes the link's source to what the link carries."""
    of = "" if ".*" in link.topics else "".join(f" --topic {shlex.quote(topic)}" for topic in link.topics)
    return f"farshore site standby --site {link.source.name}{of}"


def of_split(link: Link, split: Split | FarshoreError | None, backs: Sequence[PromotedBack]) -> Iterable[LinkFinding]:
    source, target = link.source.name, link.target.name
    if isinstance(split, FarshoreError):
        text = f"whether {source} was written to since {target} took over is not known: {split}"
        yield LinkFinding(LinkFindingKind.TROUBLE, None, None, text, split.hint or "")
        return
    if split is None:
        return
    step = f"farshore stranded list --link {link.name}"
    if split.two_active is None:
        step = f"stop what writes at {source}; then what it alone has: {step}"
    if split.two_active:
        step = _standby(link)
    if split.left_behind_by and split.two_active:
        step = f"close the site that is not to stay: farshore site standby --site {target}, or --site {source}"
    if unordered := [back.link for back in backs if back.is_later is None]:
        step = _choose_site(link, unordered[0])
    if split.two_active:
        text = f"{target} took over {_since(split.promoted_at_ms)}, and both take writes"
        yield LinkFinding(LinkFindingKind.TWO_ACTIVE, None, None, text, step)
    unreadable = [] if split.is_known else [left for left in split.not_read if left.why]
    for left in unreadable[:1]:
        text = f"whether both were written to since {target} took over is not known: {left.topic}-{left.partition} at "
        text += f"{left.site} cannot be read: {left.why}"
        yield LinkFinding(LinkFindingKind.TROUBLE, None, None, text, "")
    if split.left_behind_by and split.at_source:
        text = f"clients went to {source} along link {split.left_behind_by} since, and this link was not let run: "
        text += f"{_written(split.at_source[0], source)} ({split.at_source[0].topic}) did not come to {target}"
        step = f"farshore link resume --link {link.name} --stranded append"
        yield LinkFinding(LinkFindingKind.LEFT_BEHIND, None, None, text, step)
    if not split.is_split:
        yield from _alone(link, split)
        return
    known = _END_SEEN[split.end_seen].format(source=source)
    at_target = {(writes.topic, writes.partition): writes for writes in split.at_target}
    for here in split.at_source:
        there = at_target.pop((link.target_topic(here.topic), here.partition), None)
        of_here = _END_SEEN[here.end_seen].format(source=source)
        text = f"{_written(here, source)}; {_written(there, target)}{of_here}"
        yield LinkFinding(LinkFindingKind.SPLIT_BRAIN, here.topic, here.partition, text, step)
    for (topic, partition), writes in at_target.items():
        text = f"{_written(None, source)}; {_written(writes, target)}{known}"
        yield LinkFinding(LinkFindingKind.SPLIT_BRAIN, link.source_topic(topic) or topic, partition, text, step)


def _alone(link: Link, split: Split) -> Iterable[LinkFinding]:
    """Who went back there, and let run the other way alone, or another one that writes at a site that was left."""
    source, target = link.source.name, link.target.name
    step = f"is {source} the active site (`farshore site role`): farshore link resume --link {link.name}; else stop "
    step += f"what writes there, and see it: farshore stranded list --link {link.name}"
    for writes in split.alone:
        text = f"{_written(writes, source)} are not at {target}, and none came there, since {target} took over "
        text += f"{_since(split.promoted_at_ms)}: no link brings them{_END_SEEN[writes.end_seen].format(source=source)}"
        yield LinkFinding(LinkFindingKind.SOURCE_ALONE, writes.topic, writes.partition, text, step)


def of_closed(link: Link, closed: ClosedAtBoth | FarshoreError | None) -> Iterable[LinkFinding]:
    source, target = link.source.name, link.target.name
    if isinstance(closed, FarshoreError):
        text = f"whether clients may write at {source} or {target} is not known: {closed}"
        yield LinkFinding(LinkFindingKind.TROUBLE, None, None, text, closed.hint or "")
    elif closed is not None:
        others = len(closed.topics) - TOPICS_NAMED
        named = ", ".join(closed.topics[:TOPICS_NAMED]) + (f" and {others} more" if others > 0 else "")
        how = f"{source} is {_standing(closed.source)}, {target} {_standing(closed.target)}"
        topics = "".join(f" --topic {shlex.quote(topic)}" for topic in link.topics if topic != ".*")
        there = f"--site {target}" if link.topic_names == "same" else f"by their names there --site {target}"
        step = "`farshore operation list --open` has a move that is under way or was cut short, and its way on; else, "
        step += "where no other site takes writes, let clients in where they belong: "
        step += f"farshore site thaw --site {source}{topics}, or {there}"
        text = f"no client can write to {named} at either site: {how}"
        yield LinkFinding(LinkFindingKind.NONE_ACTIVE, None, None, text, step)


def _standing(standing: SiteStanding) -> str:
    return f"{standing.role} since {standing.reason or 'somebody said so'}"


def of_source_lacks(link: Link, lacks: Iterable[SourceParting] | FarshoreError) -> Iterable[LinkFinding]:
    source, target = link.source.name, link.target.name
    waits = "a failback waits longer for it, and is refused where it stays unknown: "
    waits += f"farshore failback --link {link.name} --dry-run"
    if isinstance(lacks, FarshoreError):
        text = f"whether {source} still has what was mirrored from it is not known: {lacks}"
        yield LinkFinding(LinkFindingKind.SOURCE_NOT_COMPARED, None, None, text, waits)
        return
    step = f"bring the newer disk of {source} back, or have it begin with empty disks: farshore failback --link "
    step += f"{link.name} --dry-run tells how"
    for one in lacks:
        if not one.is_known:
            yield LinkFinding(
                LinkFindingKind.SOURCE_NOT_COMPARED, one.topic, one.partition, one.in_words(source), waits
            )
            continue
        text = f"{target} alone has records that {source} had, and no link brings them: {one.in_words(source)}"
        yield LinkFinding(LinkFindingKind.SOURCE_LACKS, one.topic, one.partition, text, step)


def _written(writes: LocalWrites | None, site: str) -> str:
    if writes is None:
        return f"none at {site}"
    count = f"{'' if writes.is_complete else 'at least '}{writes.records:,}"
    stamped = f", the first stamped {told_time(writes.first_timestamp_ms)}" if writes.first_timestamp_ms >= 0 else ""
    return f"{count} of its own at {site} from offset {writes.first_offset} on{stamped}"


def _since(at_ms: int) -> str:
    return f"at {told_time(at_ms)}"
