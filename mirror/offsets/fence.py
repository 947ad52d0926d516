"""Taking a link over: after the fence, no earlier writer of the link can write, and its successor can.

InitProducerId with the link's transactional id raises the epoch; an aborted transaction over all partitions carries the
new epoch into each of them, by its marker (which takes one offset there); a second InitProducerId succeeds only when
all those markers are written, and gives the epoch to write with, from sequence 0. Only what is read after that is
final. It names the first one's epoch, and fails where that was overtaken: while it waits, another owner may fence and
begin to write, and an epoch above that owner's without markers of its own would fence nobody. Works on Apache Kafka
from 2.8 and on farshore's broker; plain idempotent batches may be sent with this id.

A partition that loses its leader after it was found well takes no marker, and the transaction cannot end before. The
others do not wait for it: the coordinator says whose marker is still to come (KIP-664), and where all others have
theirs, the transaction's own epoch is good there. See docs/adr/0012-a-fence-goes-on-without-whom-it-waits-for.md.

A fence is extended to more partitions by an aborted transaction of its writer over those alone: no epoch changes, and
where the writer moves records already nothing happens. See docs/adr/0017-a-fence-is-extended-under-its-own-epoch.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from broker.client.configs import describe_topic_configs
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import split_failures
from broker.client.model import Partition, Topic
from broker.client.offsets import list_each_offset
from broker.client.producers import (
    ConcurrentTransaction,
    ProducerIdAndEpoch,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
)
from broker.client.topics import describe_each_topic
from broker.client.transactions import DescribedTransaction, open_transaction
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import LATEST, NO_LEADER, TopicPartition
from mirror.errors import LinkFenced, StateDamaged
from mirror.limits import (
    FENCE_AWAITS_NAMED_MAX,
    FENCE_PATIENCE_MS,
    GROUP_FENCE_PATIENCE_MS,
    GROUP_TRANSACTION_TIMEOUT_MS,
)
from mirror.link import Link
from mirror.offsets.entries import Writer
from mirror.offsets.state import StateReader
from mirror.offsets.state_writer import FENCED_CODES
from mirror.offsets.tail import writable_of


class FenceAwaits(ConcurrentTransaction):
    """An earlier fence of the link waits for markers, and until they are written nobody can take the link over."""

    def __init__(self, link: Link, unmarked: Mapping[TopicPartition, ClientError]) -> None:
        places = ", ".join(f"{where} ({why})" for where, why in sorted(unmarked.items())[:FENCE_AWAITS_NAMED_MAX])
        super().__init__(f"link {link.name}: its last fence waits for {len(unmarked)} partitions, {places}")
        self.hint = fence_hint(link, unmarked)


def fence_hint(link: Link, unmarked: Iterable[TopicPartition]) -> str:
    """What lets a fence go on that waits for these partitions."""
    first = min(unmarked)
    return (
        f"bring back a broker of {link.target.name} that has a replica of {first}, or delete topic {first.topic} there:"
        " the link goes on by itself"
    )


@dataclass(frozen=True, slots=True)
class Fence:
    """Who may write now, and the partitions that this fence does not reach, with the reason: nobody may write there.

    `awaited` are those of them that its transaction waits for: until they have a leader, nobody can fence anew.
    `groups_error`: why an earlier owner's commits of groups' offsets are not fenced; None where they are.
    """

    writer: Writer
    left_out: Mapping[TopicPartition, ClientError]
    awaited: frozenset[TopicPartition] = frozenset()
    groups_error: KafkaError | None = None
    reached: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Those that have its marker, of a fence of all that the link could write to, each with its topic's id before that.
    """


async def fence_link(
    target: Cluster,
    link: Link,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    since: Writer | None = None,
    unmarkable: Mapping[TopicPartition, ClientError] | None = None,
) -> Fence:
    """Fence the link's earlier writers in `partitions` of the target and in the state topic, and become its writer.

    Without `partitions`: all of the target's partitions that the link could write to. The state topic must exist.
    A partition that can take no marker now is left out: the fence would wait for it, and every later fence, too.
    `since` is the writer that an earlier fence gave: nobody may have taken the link over after that. It is the writer
    still, in the state topic too, where the fence goes on without a partition that it waits for. `unmarkable` are those
    that could take no marker when they were last asked; None: they are asked now.
    Raises LinkFenced when somebody else takes the link over at the same time, FenceAwaits where an earlier fence still
    waits for a partition, and ClientError.
    """
    state = TopicPartition(link.state_topic, link.state_partition)
    transactional_id = link.transactional_id
    topics: Mapping[str, Topic] = {}
    if partitions is None:
        topics, failures = await describe_each_topic(target)
        wanted = writable_of(link, topics)
        left_out = await unmarkable_of(target, wanted, topics, failures)
    else:
        wanted = list(partitions)
        left_out = dict(unmarkable) if unmarkable is not None else await find_unmarkable(target, wanted)
    everywhere = [state, *(where for where in wanted if where not in left_out)]
    producer = ProducerIdAndEpoch(*since) if since is not None else None
    try:
        producer = producer or await init_producer_id(target, transactional_id)
        refused = await add_partitions_to_txn(target, transactional_id, producer, everywhere)
        if state in refused:
            raise refused[state]
        await end_txn(target, transactional_id, producer, commit=False)
        writer, awaited = await _until_marked(target, link, producer)
        left_out |= refused | awaited
        ids = {where: str(topics[where.topic].topic_id or "") for where in wanted if where.topic in topics}
        reached = {where: topic_id for where, topic_id in ids.items() if where not in left_out}
        return Fence(writer, left_out, frozenset(awaited), reached=reached)
    except ConcurrentTransaction as error:
        unmarked = await find_unmarked(target, link)
        if unmarked:
            raise FenceAwaits(link, unmarked) from error
        raise
    except KafkaError as error:
        if error.code in FENCED_CODES:
            text = f"link {link.name} was taken over by another owner while it was starting"
            raise LinkFenced(text, writer=producer) from error
        raise


async def _until_marked(
    target: Cluster, link: Link, producer: ProducerIdAndEpoch
) -> tuple[Writer, dict[TopicPartition, ClientError]]:
    """Who may write once the markers of the transaction of `producer` are written, and the partitions that have none.

    While the transaction is not ended nobody is given an epoch, so that of the transaction is the newest one, and only
    `producer` has it: it may write wherever its marker is. Raises ConcurrentTransaction, KafkaError as it was fenced.
    """
    retry, state = target.retry(), TopicPartition(link.state_topic, link.state_partition)
    while True:
        try:
            patience_ms = FENCE_PATIENCE_MS
            found = await init_producer_id(target, link.transactional_id, producer, patience_ms=patience_ms)
            return Writer(*found), {}
        except ConcurrentTransaction as error:
            ending = await _ending(target, link)
            if ending is not None and ending.producer == producer:
                without = await find_unmarkable(target, ending.partitions)
                if without.keys() == ending.partitions and state not in without:
                    return Writer(*producer), without
            await retry.pause(error)


async def extend_fence(target: Cluster, link: Link, writer: Writer, partitions: Iterable[TopicPartition]) -> Fence:
    """Fence the link's earlier writers in these partitions of the target, too, for who fenced the link before.

    The writer must send nothing to them meanwhile, and never extend two fences at a time. What it sent there before,
    and has an answer to, is in the logs when this returns, or never comes. What keeps a partition out is its own:
    it is left out, `awaited` if the transaction waits for it, and then this waits with the next one. Raises LinkFenced
    when somebody else has taken the link over, ClientError when the target does not answer at all.
    """
    wanted = list(partitions)
    left_out = await find_unmarkable(target, wanted)
    producer, transactional_id = ProducerIdAndEpoch(*writer), link.transactional_id
    reached = [where for where in wanted if where not in left_out]
    if not reached:
        return Fence(writer, left_out)
    try:
        refused = await add_partitions_to_txn(target, transactional_id, producer, reached)
        left_out |= refused
        if len(refused) == len(reached):
            return Fence(writer, left_out)
        await end_txn(target, transactional_id, producer, commit=False)
        awaited = await _until_ended(target, link, producer)
    except KafkaError as error:
        if error.code in FENCED_CODES:
            raise LinkFenced(f"link {link.name}: another owner took over", writer=writer) from error
        return Fence(writer, left_out | dict.fromkeys(reached, error))
    return Fence(writer, left_out | awaited, frozenset(awaited))


async def _until_ended(target: Cluster, link: Link, producer: ProducerIdAndEpoch) -> dict[TopicPartition, ClientError]:
    """Wait for the markers of the transaction that `producer` has aborted -> the partitions that have none, and why.

    A repeated EndTxn is refused while markers are on their way, and succeeds when all are written and nobody has taken
    the transactional id over. Raises ConcurrentTransaction where that takes too long, KafkaError as it was fenced.
    """
    retry = target.retry()
    while True:
        try:
            await end_txn(target, link.transactional_id, producer, commit=False, patience_ms=FENCE_PATIENCE_MS)
            return {}
        except ConcurrentTransaction as error:
            ending = await _ending(target, link)
            if ending is not None and ending.producer == producer:
                without = await find_unmarkable(target, ending.partitions)
                if without.keys() == ending.partitions:
                    return without
            await retry.pause(error)


async def find_unmarked(target: Cluster, link: Link) -> dict[TopicPartition, ClientError]:
    """The partitions that a fence of the link waits for and that take no marker now, and why. Raises ClientError."""
    ending = await _ending(target, link)
    return await find_unmarkable(target, ending.partitions) if ending is not None else {}


async def _ending(target: Cluster, link: Link) -> DescribedTransaction | None:
    found = await open_transaction(target, link.transactional_id)
    return found if found is not None and found.is_ending else None


async def fence_groups(target: Cluster, link: Link, since: ProducerIdAndEpoch | None = None) -> ProducerIdAndEpoch:
    """Become the one who may commit groups' offsets for the link: what an earlier one has staged is taken back.
    `since`: who did so before, and is refused where anybody else has since (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH).

    When this returns no commit of an earlier writer is under way. Where the markers of its last transaction cannot be
    written, this raises ConcurrentTransaction: what it had decided comes with them, and if it was it who ended that
    transaction, it is not fenced before. Raises ClientError.
    """
    return await init_producer_id(
        target,
        link.groups_transactional_id,
        since,
        transaction_timeout_ms=GROUP_TRANSACTION_TIMEOUT_MS,
        patience_ms=GROUP_FENCE_PATIENCE_MS,
    )


async def fence_groups_of_earlier(
    target: Cluster, link: Link, state: StateReader | None = None
) -> ProducerIdAndEpoch | KafkaError | None:
    """As `fence_groups`, for who commits nothing now -> who may commit, or why it could not be done; None where there
    was nothing to fence.

    The link's state must be claimed: a worker says there that it looks at groups before it commits any, so the state
    says of all that came before whether there is anything to fence, whatever the link's file says now. Records, and a
    promotion, do not wait for groups. `state` is a reader of it that goes on from where it stood. Raises ClientError
    when the target does not answer at all.
    """
    try:
        if link.groups or await _had_groups(target, state or StateReader(link)):
            return await fence_groups(target, link)
    except KafkaError as error:
        return error
    return None


async def _had_groups(target: Cluster, state: StateReader) -> bool:
    """Whether the link ever looked at groups, as its state says; where that cannot be read: it may have."""
    try:
        groups = (await state.read(target, only=())).groups
    except StateDamaged:
        return True
    return bool(groups.names) or groups.looked_at_ms is not None


async def find_unmarkable(target: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ClientError]:
    """Those that could not take a transaction's marker (nor a record) now, and why. Raises ClientError.

    A marker needs a leader that answers and `min.insync.replicas` in sync. Whether a leader answers is asked of it: of
    a broker that has just died the metadata still say that it leads.
    """
    wanted = list(partitions)
    if not wanted:  # a claim fences the state alone: a round trip less
        return {}
    return await unmarkable_of(target, wanted, *await describe_each_topic(target, {where.topic for where in wanted}))


async def unmarkable_of(
    target: Cluster,
    wanted: Iterable[TopicPartition],
    topics: Mapping[str, Topic],
    failures: Mapping[str, KafkaError],
) -> dict[TopicPartition, ClientError]:
    """As `find_unmarkable`, of topics that were just described, or could not be."""
    described = {
        TopicPartition(topic.name, partition.partition): partition
        for topic in topics.values()
        for partition in topic.partitions
    }
    min_isr = await _min_insync_replicas(target, described)
    found: dict[TopicPartition, ClientError] = {}
    for where in wanted:
        partition, what = described.get(where), f"{where} at {target.site.name}"
        if where.topic in failures:
            found[where] = failures[where.topic]
        elif partition is None:
            found[where] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
        elif partition.leader_id == NO_LEADER:
            found[where] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, what)
        elif len(partition.isr) < min(min_isr.get(where.topic, 1), len(partition.replicas)):
            short = f"{len(partition.isr)} of {len(partition.replicas)} replicas are in sync"
            found[where] = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, what, short)
    asked = {where: LATEST for where in wanted if where not in found}
    return found | split_failures(await list_each_offset(target, asked))[1]


async def _min_insync_replicas(target: Cluster, described: Mapping[TopicPartition, Partition]) -> dict[str, int]:
    """Per topic that has a replica out of sync; 1, Kafka's default, where the config cannot be read."""
    behind = {where.topic for where, partition in described.items() if len(partition.isr) < len(partition.replicas)}
    found = {}
    for topic, configs in (await describe_topic_configs(target, behind)).items():
        entry = None if isinstance(configs, KafkaError) else configs.get("min.insync.replicas")
        found[topic] = int(entry.value) if entry is not None and entry.value else 1
    return found
