"""Committing groups' offsets at the target under the link's fence, each only while it stands as it was decided on.

They are staged in a transaction; then the target is looked at again, and the transaction is ended. So a writer that
was fenced in between, however long it hung, moves no group (docs/adr/0008-groups-by-ranges-of-origin.md). A group that
has members refuses to be staged; one whose offsets stand in another's open transaction is left to the next pass
(docs/adr/0037-nothing-is-staged-over-a-transaction.md); what a job commits that comes later counts, since it lies
behind what was staged; one that has come and gone before is seen by the second look.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from broker.base.naming import named
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError, RequestTimedOut
from broker.client.group_transactions import Staged, add_groups_to_txn, stage_offsets
from broker.client.groups import committed_offsets_of_groups
from broker.client.model import CommittedOffset
from broker.client.producers import ProducerIdAndEpoch, end_txn
from broker.client.topics import describe_each_topic
from broker.wire.coordinator_keys import OFFSETS_TOPIC, partition_for
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.limits import GROUP_COMMIT_ROUNDS, GROUP_FENCE_PATIENCE_MS, GROUP_SYNC_TIMEOUT_MS, HELD_NAMED_MAX
from mirror.link import Link
from mirror.offsets.fence import unmarkable_of
from mirror.offsets.state_writer import FENCED_CODES


class OffsetsHeld(ClientError):
    """A transaction that has not ended commits some of these offsets of the group, too. What were committed behind it
    would count in its place, and the application's own commit would not, although it is told that it is done.
    """

    hint = "it is looked at again; `kafka-transactions.sh list` says whose transactions are ongoing"

    def __init__(self, site: str, held: Collection[TopicPartition]) -> None:
        where = named([str(at) for at in sorted(held)], HELD_NAMED_MAX)
        super().__init__(f"a transaction at {site} that has not ended has the group's offset in {where}")


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be committed of one group, and its offsets at the target that this was decided on."""

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]
    before: Mapping[TopicPartition, CommittedOffset]

    def has_changed(self, now: Mapping[TopicPartition, CommittedOffset]) -> bool:
        return any(now.get(where) != self.before.get(where) for where in self.offsets)


class GroupPlaces(NamedTuple):
    """The partition that each group lives in, as far as the offsets topic may be described, and the groups whose
    partition can take no marker now: a transaction with one of them would not end, for none of them.
    """

    known: Mapping[str, TopicPartition]
    unmarkable: Mapping[str, ClientError]


class Commits(NamedTuple):
    """What became of a transaction: the groups that are not known to be committed, and why. `error`: why the
    transaction as a whole is not known to be; None where it is. `writer` has committed it; None: there was none.

    Of the failures those `in_doubt` may be committed all the same, or in part; nothing of the others is, nor will be.
    """

    failures: Mapping[str, ClientError]
    error: ClientError | None
    writer: ProducerIdAndEpoch | None
    in_doubt: frozenset[str] = frozenset()


class _Stage(NamedTuple):
    """The groups that were refused, those of them of which a part was taken, and those for which the transaction must
    not be committed.
    """

    refused: dict[str, ClientError]
    in_part: frozenset[str]
    against: dict[str, ClientError]


async def commit_groups(
    target: Cluster,
    link: Link,
    begin: Callable[[], Awaitable[ProducerIdAndEpoch]],
    due: Sequence[Due],
    places: GroupPlaces,
) -> Commits:
    """Commit these groups, all in one transaction.

    `begin` gives what `fence_groups` gave, and then asks whether the link is the caller's still. Each round begins so:
    what was staged too late for the one before is refused in the next. Raises what `begin` raises beside ClientError.
    """
    failures: dict[str, ClientError] = {
        one.group: places.unmarkable[one.group] for one in due if one.group in places.unmarkable
    }
    left = list(due)
    writer: ProducerIdAndEpoch | None = None
    in_doubt: frozenset[str] = frozenset()
    try:
        for _ in range(GROUP_COMMIT_ROUNDS):
            left = [one for one in due if one.group not in failures]
            if not left:
                return Commits(failures, None, None)
            writer = await begin()
            stage = await _stage(target, link, writer, left, places.known)
            failures |= stage.refused | stage.against
            if not stage.against:  # whatever comes of asking for its end
                in_doubt = stage.in_part | {one.group for one in left if one.group not in failures}
            await end_txn(target, link.groups_transactional_id, writer, commit=not stage.against)
            if not stage.against:
                return Commits(failures, None, writer, stage.in_part)
    except ClientError as error:
        if writer is not None:
            with suppress(ClientError):  # else the next pass takes it back, or whoever takes the link over
                await end_txn(target, link.groups_transactional_id, writer, commit=False)
        return Commits(dict.fromkeys((one.group for one in left), error) | failures, error, None, in_doubt)
    given_up = ClientError(f"groups at {target.site.name} changed again and again", "the next pass looks again")
    return Commits(dict.fromkeys((one.group for one in left), given_up) | failures, None, None)


async def until_counted(target: Cluster, link: Link, writer: ProducerIdAndEpoch) -> None:
    """Wait until what `writer` has committed counts for whoever reads it: until its markers are written. Raises
    ClientError where that takes too long.

    Who commits groups for the link since was let in behind those markers (`fence_groups`): then it counts, too.
    """
    patience_ms = GROUP_FENCE_PATIENCE_MS
    try:
        await end_txn(target, link.groups_transactional_id, writer, commit=True, patience_ms=patience_ms)
    except KafkaError as error:
        if error.code not in FENCED_CODES:
            raise


async def find_places(target: Cluster, groups: Sequence[str]) -> GroupPlaces:
    """Raises ClientError, also where farshore may not know the places."""
    topics, failures = await describe_each_topic(target, [OFFSETS_TOPIC])
    if OFFSETS_TOPIC not in topics:
        if (
            refused := failures.get(OFFSETS_TOPIC)
        ) is not None and refused.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise refused
        return GroupPlaces({}, {})
    count = len(topics[OFFSETS_TOPIC].partitions)
    known = {group: TopicPartition(OFFSETS_TOPIC, partition_for(group, count)) for group in groups}
    found = await unmarkable_of(target, set(known.values()), topics, failures)
    return GroupPlaces(known, {group: found[where] for group, where in known.items() if where in found})


async def _stage(
    target: Cluster,
    link: Link,
    writer: ProducerIdAndEpoch,
    due: Sequence[Due],
    places: Mapping[str, TopicPartition],
) -> _Stage:
    by_group = {one.group: one for one in due}
    txn = link.groups_transactional_id
    # What is added is the partition that a group lives in.
    one_each = {places.get(group, group): group for group in by_group}
    await add_groups_to_txn(target, txn, writer, one_each.values())
    offsets = {group: one.offsets for group, one in by_group.items()}
    staged = await stage_offsets(target, txn, writer, offsets, patience_ms=GROUP_SYNC_TIMEOUT_MS)
    refused: dict[str, ClientError] = {}
    against: dict[str, ClientError] = {}
    for group, found in staged.items():
        match found:
            case Staged() if found.held:
                against[group] = OffsetsHeld(target.site.name, found.held)
            case Staged():
                refused |= {group: found.error} if found.error is not None else {}
            case RequestTimedOut():
                against[group] = RequestTimedOut(f"group {group}: its commit at {target.site.name} took too long")
            case _:
                against[group] = found
    taken = [group for group, found in staged.items() if isinstance(found, Staged) and found.is_any_taken]
    now = await committed_offsets_of_groups(target, taken, patience_ms=GROUP_SYNC_TIMEOUT_MS)
    for group, looked in now.items():
        if isinstance(looked, ClientError):
            against[group] = looked
        elif by_group[group].has_changed(looked):
            against[group] = changed_meanwhile(group, target)
    return _Stage(refused, frozenset(refused.keys() & set(taken)), against)


def changed_meanwhile(group: str, cluster: Cluster) -> ClientError:
    """Why a group that stands at this site elsewhere than it was decided on is not moved by this pass."""
    text = f"group {group}: its offsets at {cluster.site.name} changed while they were looked at"
    return ClientError(text, "the next pass looks again")
