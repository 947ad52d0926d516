"""Committed offsets of many groups in one transaction: staged, and then all of them counted or none.

OffsetCommit knows no fence; TxnOffsetCommit does: once another producer has the transactional id, nothing more can be
staged, and what was staged is taken back (KIP-98). A staged offset is overtaken by any plain commit that comes after
it, and until the transaction ends, readers that ask for stable offsets wait (KIP-447).

Of two transactions with the same offset the one counts that staged it later, whichever ends later. So nothing is staged
over what another one holds: a group is asked for that right before, on the same connection
(docs/adr/0037-nothing-is-staged-over-a-transaction.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError, KafkaError, UnsupportedByCluster
from broker.client.fanout import ask_coordinator, ask_each_group
from broker.client.model import CommittedOffset
from broker.client.offset_fetch import fetch_pending, pending_in, send_pending
from broker.client.producers import ProducerIdAndEpoch, raise_error
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.offset_fetch import OffsetFetchResponse
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from broker.wire.vocabulary import TopicPartition

OUTSIDER: Final = "farshore"
"""The member that stages. It is in no group: without any name Kafka takes the offsets of a group with members, too;
with one such a group refuses them (UNKNOWN_MEMBER_ID), and a group without members takes them."""
_MEMBERS_SINCE: Final = 3


class Staged(NamedTuple):
    """What became of one group's offsets: whether any was taken, and why not all were. `held`: where another
    transaction, which has not ended, commits one, too: what was staged now would count in its place, and is the
    caller's to take back.
    """

    is_any_taken: bool
    error: KafkaError | None
    held: frozenset[TopicPartition] = frozenset()


async def add_groups_to_txn(
    cluster: Cluster, transactional_id: str, producer: ProducerIdAndEpoch, groups: Iterable[str]
) -> None:
    """Begin the transaction, if it has not begun, and add these groups' offsets to it. Raises ClientError."""
    wanted = list(groups)

    async def ask(connection: Connection) -> None:
        sent = [await connection.send(AddOffsetsToTxnRequest(transactional_id, *producer, group)) for group in wanted]
        for group, answer in zip(wanted, [await answer for answer in sent], strict=True):
            raise_error(answer.error_code, f"{transactional_id}: adding group {group} at {cluster.site.name}")

    await ask_coordinator(cluster, "transaction", transactional_id, ask)


async def stage_offsets(
    cluster: Cluster,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    *,
    patience_ms: int | None = None,
) -> dict[str, Staged | ClientError]:
    """Stage the offsets of groups that were added -> per group what became of them, or why that is not known.

    A group that has members refuses all of its own. One is held also by what this transaction staged before, be it
    in a try that had no answer. What fails is tried again for `patience_ms` (None: the client's own).
    """

    async def ask(connection: Connection, share: list[str]) -> dict[str, Staged | KafkaError]:
        if connection.version(ApiKey.TXN_OFFSET_COMMIT) < _MEMBERS_SINCE:
            raise UnsupportedByCluster(f"{cluster.site.name} would move groups that have members (Kafka before 2.5)")
        sent = [
            (
                await send_pending(connection, group, offsets[group]),
                await connection.send(_request(transactional_id, producer, group, offsets[group])),
            )
            for group in share
        ]
        answers = [(await looked, await staged) for looked, staged in sent]
        return {
            group: _unless_held(cluster, group, looked, _staged(cluster, group, offsets[group], staged))
            for group, (looked, staged) in zip(share, answers, strict=True)
        }

    return await ask_each_group(cluster, list(offsets), ask, patience_ms=patience_ms)


async def held_offsets(
    cluster: Cluster, offsets: Mapping[str, Collection[TopicPartition]], *, patience_ms: int | None = None
) -> dict[str, frozenset[TopicPartition] | ClientError]:
    """Per group where, of these partitions, a transaction that has not ended commits an offset, or why that is not
    known. `patience_ms`: as of `stage_offsets`.
    """

    async def ask(connection: Connection, share: list[str]) -> dict[str, frozenset[TopicPartition] | KafkaError]:
        return await fetch_pending(connection, cluster.site.name, {group: offsets[group] for group in share})

    return await ask_each_group(cluster, list(offsets), ask, patience_ms=patience_ms)


def _unless_held(
    cluster: Cluster, group: str, looked: OffsetFetchResponse, staged: Staged | KafkaError
) -> Staged | KafkaError:
    """One that nothing was taken of needs no look."""
    if isinstance(staged, KafkaError) or not staged.is_any_taken:
        return staged
    pending = pending_in(cluster.site.name, group, looked)
    if isinstance(pending, KafkaError):
        return pending
    return staged._replace(held=pending)


def _request(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> TxnOffsetCommitRequest:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for where, committed in offsets.items():
        asked = TxnOffsetCommitRequestPartition(
            where.partition, committed.offset, committed.leader_epoch, committed.metadata
        )
        topics.setdefault(where.topic, []).append(asked)
    return TxnOffsetCommitRequest(
        transactional_id,
        group,
        *producer,
        member_id=OUTSIDER,
        topics=[TxnOffsetCommitRequestTopic(name, asked) for name, asked in topics.items()],
    )


def _staged(
    cluster: Cluster, group: str, wanted: Iterable[TopicPartition], answer: TxnOffsetCommitResponse
) -> Staged | KafkaError:
    """What is not answered for was not taken."""
    answered = {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }
    codes = {where: answered.get(where, ErrorCode.UNKNOWN_SERVER_ERROR) for where in wanted}
    refused = [
        KafkaError(code, f"offset of {group} in {where} at {cluster.site.name}")
        for where, code in codes.items()
        if code
    ]
    if len(refused) == len(codes) and refused[0].retriable:
        return refused[0]
    return Staged(len(refused) < len(codes), refused[0] if refused else None)
