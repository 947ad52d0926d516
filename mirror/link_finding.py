"""What may be found of a link: one thing at a time, with its next step."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum


class LinkFindingKind(StrEnum):
    """Why a link is not healthy."""

    SITE_LOST = "site_lost"
    SITE_LOCKED = "site_locked"
    """It does not let farshore in, or farshore lacks what it needs to ask: nothing says that the site is lost."""
    TROUBLE = "trouble"
    """A site answered, and then something of it could not be read."""
    NEVER_RAN = "never_ran"
    STATE_LOST = "state_lost"
    """A mirror wrote to the target, and the link's state there is gone."""
    PAUSED = "paused"
    """By a person: records are missing until it is resumed."""
    TOPIC_PAUSED = "topic_paused"
    """By a person: records of this topic are missing until it is resumed."""
    AWAITED = "awaited"
    """A command left the link to its worker a moment ago, and no worker has written a heartbeat since."""
    SILENT = "silent"
    """No worker gave a sign of life for longer than the limit."""
    CLOCKS_DIFFER = "clocks_differ"
    """The heartbeat is of the future: whether the worker lives cannot be told from one look."""
    RESTARTING = "restarting"
    PARTITION_STOPPED = "partition_stopped"
    PARTITION_HELD = "partition_held"
    """A partition (or all of a topic) should be mirrored and is not for now; the others are."""
    FENCE_WAITS = "fence_waits"
    """Until this partition has a leader again no session of the link, and no failover over it, can begin."""
    TRANSACTION_OPEN = "transaction_open"
    """What stands behind it at the source is not mirrored before it ends, and no lag counts that."""
    LAG_UNKNOWN = "lag_unknown"
    """Records are missing at the target, and how many or how old they are could not be seen."""
    LEFT_TO_SILENT = "left_to_silent"
    """Records of another site are left to its direct link, which is not declared here, and does not run."""
    SPLIT_BRAIN = "split_brain"
    """One site took over from the other, and both were written to since."""
    TWO_ACTIVE = "two_active"
    """The same, and both take writes, by their roles."""
    NONE_ACTIVE = "none_active"
    """By their roles neither site takes writes: a move is under way or was cut short, or both started frozen."""
    SOURCE_ALONE = "source_alone"
    """One site took over from the other, and only that one was written to since: no link brings it."""
    BOTH_PROMOTED = "both_promoted"
    """A link back is promoted, too: neither mirrors."""
    LEFT_BEHIND = "left_behind"
    """Clients went to the source since, and this link was not let run: what is written there does not come here."""
    SOURCE_LACKS = "source_lacks"
    """The source came back with an older disk, or a topic made anew: the target has of it what it lacks, and no link
    brings that.
    """
    SOURCE_NOT_COMPARED = "source_not_compared"
    """Whether it is so cannot be told."""
    GROUP_FAILED = "group_failed"
    """A group's offsets could not be read or committed."""
    GROUPS_NOT_SEEN = "groups_not_seen"
    """The groups were not looked at for longer than the limit, or never."""
    ACLS_DIFFER = "acls_differ"
    """ACLs at the target are not as the link is to have them, and it does not change that by itself."""
    ACLS_NOT_SEEN = "acls_not_seen"
    """The ACLs were not compared for longer than the limit, or could not be."""
    ACLS_HELD = "acls_held"
    """The target took over, and rights that were held back before have not been given."""


@dataclass(frozen=True, slots=True)
class LinkFinding:
    """One thing that is not as it should be; of the whole link where `topic` is None. `next_step` may be ""."""

    kind: LinkFindingKind
    topic: str | None
    partition: int | None
    detail: str
    next_step: str


def start_step(link: str) -> str:
    """What starts a worker of a link of which none is seen, and what that does to one that lives all the same."""
    own = "only where no mirror runs it, nor was just started: it fences such a one, which then ends"
    return f"farshore mirror run --link {link}; {own}"


def told_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
