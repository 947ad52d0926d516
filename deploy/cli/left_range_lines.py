"""What was left at a source by an earlier decision, in a sentence: a move from there does not bring it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.base.documents import iso_time
from deploy.cli.tables import counted
from failover.observing.snapshot import LeftRange

_NOBODY = "nobody has replayed them there"
_BY_LINK = "`farshore stranded list --link {link}` shows them; when {target} is the active site, "
_EXPORT = "`farshore stranded export --link {link} --left --to DIR`, then "
_REPLAY = "`farshore stranded replay --link {link} --from DIR --policy append`, brings {them} there"


def left_range_lines(left: Sequence[LeftRange], link: str, source: str, target: str) -> Iterable[str]:
    """One, or none where nothing was left."""
    if left:
        may_be_there = any(one.may_be_replayed for one in left)
        them = "what of them was not replayed before, and nothing twice," if may_be_there else "them"
        ways = (_BY_LINK + _EXPORT + _REPLAY).format(link=link, target=target, them=them)
        had = "has them where they were replayed since, which was not looked at" if may_be_there else _NOBODY
        yield (
            f"{left_count(left)} stay at {source} alone, as was decided {_decided(left)}: {target} does not get them "
            f"from link {link}, and {had}. {ways}"
        )


def left_count(left: Sequence[LeftRange]) -> str:
    """How many: by reading them, or no more than a bound."""
    where = f" in {counted(len({(one.topic, one.partition) for one in left}), 'partition')}"
    counts = [one.records for one in left]
    records = sum(count or 0 for count in counts)
    if None not in counts:
        return f"{counted(records, 'record')}{where}"
    bound = sum(one.end_offset - one.first_offset if one.records is None else one.records for one in left)
    return f"at most {counted(bound, 'record')}{where} (by their offsets: they were not read)"


def _decided(left: Sequence[LeftRange]) -> str:
    last = max(left, key=lambda one: one.decided_at_ms)
    reason = f" ({last.reason})" if last.reason else ""
    is_one = len({(one.reason, one.decided_at_ms // 1000) for one in left}) == 1
    return f"{'at' if is_one else 'more than once, the last time at'} {iso_time(last.decided_at_ms)}{reason}"
