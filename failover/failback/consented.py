"""Whether a plan of a failback is still what was shown of its groups, while the link back goes on bringing. Pure."""

from __future__ import annotations

from dataclasses import astuple, replace

from failover.failback.plan import FailbackPlan


def is_as_shown(shown: FailbackPlan, now: FailbackPlan) -> bool:
    """All of it, but that of groups less may have become of what was shown, and anything of what was not known."""
    return _but_groups(shown) == _but_groups(now) and does_no_more(shown, now)


def does_no_more(shown: FailbackPlan, now: FailbackPlan) -> bool:
    """Whether no group goes back that was not shown to, nor reads again or skips more than was said of it, nor more of
    what the old source has lost, also where the rest of it was not known.
    """
    unknown = set(shown.foreseen.to_be_brought)
    back = {(one.group, one.topic, one.partition) for one in shown.foreseen.set_back}
    goes = {(one.group, one.topic, one.partition) for one in now.foreseen.set_back if one.group not in unknown}
    lost = {(one.group, one.topic, one.partition): one.records for one in shown.foreseen.skips}
    more_lost = (_is_more(lost.get(one[:3], 0), one[3]) for one in map(astuple, now.foreseen.skips))
    if not goes <= back or any(more_lost):
        return False
    said = {one.group: (one.read_again_records, one.skipped_records) for one in shown.group_totals}
    return not any(
        _is_more(told, found)
        for one in now.group_totals
        for told, found in zip(said.get(one.group, (0, 0)), (one.read_again_records, one.skipped_records), strict=True)
    )


def _but_groups(plan: FailbackPlan) -> FailbackPlan:
    foreseen = replace(plan.foreseen, set_back=(), to_be_brought=(), skips=())
    return replace(plan, foreseen=foreseen, group_totals=())


def _is_more(said: int | None, found: int | None) -> bool:
    return said is not None and (found is None or found > said)
