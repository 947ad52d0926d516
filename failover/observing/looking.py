"""What one site says of its logs and groups, asked side by side: a look takes few round trips, whatever there is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from broker.client.cluster import Cluster
from broker.client.described_groups import DescribedConsumerGroup
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import both, split_failures
from broker.client.first_offsets import NOT_KNOWN, OpenOffsets, open_offsets, with_first_offsets
from broker.client.groups import (
    committed_offsets_of_groups,
    describe_each_group,
    describe_groups,
    list_groups,
    list_groups_in_part,
    stable_offsets_of_groups,
)
from broker.client.model import CommittedOffset, Topic
from broker.client.offset_fetch import GroupOffsets
from broker.client.offsets import list_each_offset, list_offsets, log_end_offsets, log_start_offsets
from broker.client.topics import list_each_topic, list_topics
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import EARLIEST, LATEST, NO_LEADER, NO_LEADER_EPOCH, TopicPartition
from failover.limits import TARGET_ANSWER_MS
from mirror.api import Link, LinkState, MirrorError, StateReader, load_link_state, load_partial_state

T = TypeVar("T")


@dataclass(slots=True)
class Asking:
    """How a site is asked: `in_part`, what does not answer is left out, and `missed` says that there was such."""

    in_part: bool = False
    missed: bool = False

    async def ask(self, asked: Awaitable[T], instead: T) -> T:
        """What the site says, or `instead`. Raises what `asked` raises, where not `in_part`."""
        try:
            return await asked
        except (ClientError, MirrorError):
            if not self.in_part:
                raise
            self.missed = True
            return instead

    def note(self, failures: Iterable[ClientError]) -> None:
        """These were answered with errors. Raises the first, where not `in_part`."""
        for error in failures:
            if not self.in_part:
                raise error
            self.missed = True


@dataclass(frozen=True, slots=True)
class LogsSeen:
    """Topics by name, and where their logs begin and end. `read_to`: how far groups have read in some."""

    topics: Mapping[str, Topic] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    read_to: Mapping[TopicPartition, int] = field(default_factory=dict)


OffsetsByGroup: TypeAlias = Mapping[str, Mapping[TopicPartition, CommittedOffset]]


@dataclass(frozen=True, slots=True)
class GroupsSeen:
    """What a site says of groups, by name; of those that are `unanswered` nothing, and why. `pending`: where the source
    has offsets in a transaction that has not ended, so that others may count in a moment.
    """

    offsets: OffsetsByGroup = field(default_factory=dict)
    described: Mapping[str, DescribedConsumerGroup | KafkaError] = field(default_factory=dict)
    unanswered: Mapping[str, ClientError] = field(default_factory=dict)
    pending: Mapping[str, frozenset[TopicPartition]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamesSeen:
    """The groups that a site lists; `error`: why these may not be all, "" where they are."""

    names: frozenset[str] = frozenset()
    error: str = ""


async def look_at_logs(
    cluster: Cluster | None, topics: Mapping[str, Topic], groups: OffsetsByGroup, asking: Asking
) -> LogsSeen:
    """The logs of these topics, in which these groups read. Raises ClientError."""
    if cluster is None:
        return LogsSeen()
    partitions = partitions_of(topics)
    ends, starts = await both(_at(cluster, partitions, LATEST, asking), _at(cluster, partitions, EARLIEST, asking))
    return LogsSeen(topics, ends, starts, _read_to(groups))


def _read_to(groups: OffsetsByGroup) -> dict[TopicPartition, int]:
    """The furthest offset in each partition that a group committed with the leader epoch of what it had read: so far
    that log went. Kafka takes any offset from who sets one by hand, also beyond the log's end, but such a one comes
    without an epoch (as do those of some clients), and proves nothing. Pure.
    """
    found: dict[TopicPartition, int] = {}
    for offsets in groups.values():
        for at, committed in offsets.items():
            if committed.leader_epoch != NO_LEADER_EPOCH:
                found[at] = max(committed.offset, found.get(at, 0))
    return found


async def _at(
    cluster: Cluster, partitions: Iterable[TopicPartition], timestamp: int, asking: Asking
) -> dict[TopicPartition, int]:
    wanted = dict.fromkeys(sorted(partitions), timestamp)
    if asking.in_part:
        found, failures = split_failures(await asking.ask(list_each_offset(cluster, wanted), {}))
        asking.note(failures.values())
    else:
        found = await list_offsets(cluster, wanted)
    return {where: at.offset for where, at in found.items()}


def partitions_of(topics: Mapping[str, Topic]) -> set[TopicPartition]:
    """Pure."""
    return {TopicPartition(name, part.partition) for name, topic in topics.items() for part in topic.partitions}


async def topics_of(cluster: Cluster | None) -> dict[str, Topic]:
    """All topics by name; none of a site that is gone."""
    return await list_topics(cluster) if cluster else {}


async def each_topic_of(
    cluster: Cluster | None, known: Iterable[str], selects: Callable[[str], bool]
) -> tuple[dict[str, Topic], dict[str, KafkaError]]:
    """As `list_each_topic`; none of a site that is gone."""
    return await list_each_topic(cluster, known, selects) if cluster else ({}, {})


def is_asked(link: Link, name: str, asked: Collection[str]) -> bool:
    """Whether a look is about this group: `asked` are those that were asked for, empty: all that the link selects."""
    return name in asked if asked else link.selects_group(name)


async def group_names(cluster: Cluster | None, asking: Asking) -> tuple[set[str], OpenOffsets]:
    """The names of all groups, and which of them may be in transactions; none of a site that is gone. Raises
    ClientError.
    """
    if cluster is None:
        return set(), NOT_KNOWN
    listed, opened = await both(asking.ask(list_groups(cluster), {}), asking.ask(open_offsets(cluster), NOT_KNOWN))
    return set(listed), opened


def why_unlisted(site: str, topics: Mapping[str, Topic]) -> Iterable[KafkaError]:
    """Why the site's brokers may not list all groups: they list those that they coordinate, and those in a partition of
    committed offsets that nobody leads nobody coordinates.
    """
    partitions = topics[OFFSETS_TOPIC].partitions if OFFSETS_TOPIC in topics else ()
    for away in (one for one in partitions if one.leader_id == NO_LEADER):
        text = f"which groups {site} has ({OFFSETS_TOPIC}-{away.partition} has no leader)"
        yield KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)


async def look_at_source(
    source: Cluster | None,
    groups: Iterable[str],
    topics: Coroutine[Any, Any, dict[str, Topic]],
    opened: OpenOffsets,
    asking: Asking,
) -> tuple[dict[str, Topic], GroupsSeen]:
    """The `topics`, and these groups: also what they have pending there for the first time. Raises ClientError."""
    found, seen = await both(topics, _look_at_groups(source, groups, asking))
    return found, await _look_at_first_offsets(source, seen, found, opened, asking)


async def _look_at_groups(source: Cluster | None, names: Iterable[str], asking: Asking) -> GroupsSeen:
    """These groups. Raises ClientError: a plan that left one out would not say so."""
    wanted = sorted(names)
    if source is None:
        return GroupsSeen()
    answers, described = await both(
        asking.ask(stable_offsets_of_groups(source, wanted), {}), asking.ask(describe_groups(source, wanted), {})
    )
    found, failures = split_failures(answers)
    asking.note(failures.values())
    pending = {name: each.pending for name, each in found.items() if each.pending}
    return GroupsSeen({name: each.offsets for name, each in found.items()}, described, pending=pending)


async def _look_at_first_offsets(
    source: Cluster | None,
    seen: GroupsSeen,
    topics: Mapping[str, Topic],
    opened: OpenOffsets,
    asking: Asking,
) -> GroupsSeen:
    """`seen`, also with what is pending in these topics where a group has no offset so far. Raises ClientError."""
    if source is None:
        return seen
    known = {name: GroupOffsets(dict(at), seen.pending.get(name, frozenset())) for name, at in seen.offsets.items()}
    told = await asking.ask(with_first_offsets(source, known, partitions_of(topics), opened), {})
    found, failures = split_failures(told)
    asking.note(failures.values())
    known |= found
    pending = {name: each.pending for name, each in known.items() if each.pending}
    return replace(seen, offsets={name: each.offsets for name, each in known.items()}, pending=pending)


async def look_at_offsets(cluster: Cluster, names: Iterable[str], asking: Asking) -> OffsetsByGroup:
    """Where these groups stand. Raises ClientError."""
    answers = await asking.ask(committed_offsets_of_groups(cluster, names), {})
    offsets, failures = split_failures(answers)
    asking.note(failures.values())
    return offsets


def went_back(before: OffsetsByGroup, now: OffsetsByGroup) -> bool:
    """Whether one of the groups that are told of `now` stands further back than `before`, or nowhere. Pure."""
    return any(
        at not in offsets or offsets[at].offset < committed.offset
        for group, offsets in now.items()
        for at, committed in before.get(group, {}).items()
    )


class TargetLogs(NamedTuple):
    """Where logs end and begin, and why one does not say it."""

    ends: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    untold: Mapping[TopicPartition, ClientError]


@dataclass(frozen=True, slots=True)
class TargetLook:
    """How the target is asked: `in_part`, what of it does not answer holds up no other, and is told with the reason."""

    target: Cluster
    in_part: bool

    @property
    def _patience_ms(self) -> int:
        return min(TARGET_ANSWER_MS, self.target.limits.retry_timeout_ms)

    async def state(self, link: Link, reader: StateReader) -> LinkState:
        """The link's, as `load_link_state`. Raises ClientError, StateDamaged."""
        loading = load_partial_state if self.in_part else load_link_state
        return await loading(link, self.target, reader)

    async def group_names(self) -> NamesSeen:
        """Raises ClientError."""
        if not self.in_part:
            return NamesSeen(frozenset(await list_groups(self.target)))
        found, failure = await list_groups_in_part(self.target, patience_ms=self._patience_ms)
        return NamesSeen(frozenset(found), "" if failure is None else str(failure))

    async def groups(self, names: Iterable[str]) -> GroupsSeen:
        """Raises ClientError, where not `in_part`. A group whose members nobody will ever tell has its offsets."""
        wanted = sorted(names)
        if not self.in_part:
            offsets, members = await both(
                look_at_offsets(self.target, wanted, Asking()), describe_groups(self.target, wanted)
            )
            return GroupsSeen(offsets, members)
        told, described = await both(
            committed_offsets_of_groups(self.target, wanted, patience_ms=self._patience_ms),
            describe_each_group(self.target, wanted, patience_ms=self._patience_ms),
        )
        _, failures = split_failures(told)
        for name, answer in described.items():
            if isinstance(answer, ClientError) and (answer.retriable or not isinstance(answer, KafkaError)):
                failures.setdefault(name, answer)
        return GroupsSeen(
            {name: at for name, at in told.items() if not isinstance(at, ClientError) and name not in failures},
            {
                name: found
                for name, found in described.items()
                if name not in failures and (isinstance(found, KafkaError) or not isinstance(found, ClientError))
            },
            failures,
        )

    async def logs(self, partitions: Iterable[TopicPartition]) -> TargetLogs:
        """Raises ClientError."""
        wanted = list(partitions)
        if not self.in_part:
            ends, starts = await both(log_end_offsets(self.target, wanted), log_start_offsets(self.target, wanted))
            return TargetLogs(ends, starts, {})
        (ends, no_end), (starts, no_start) = await both(self._each(wanted, LATEST), self._each(wanted, EARLIEST))
        return TargetLogs(ends, starts, {**no_start, **no_end})

    async def _each(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ClientError]]:
        found, failures = split_failures(await list_each_offset(self.target, dict.fromkeys(partitions, timestamp)))
        return {where: at.offset for where, at in found.items()}, failures
