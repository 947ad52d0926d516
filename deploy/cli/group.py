"""`farshore group`: consumer groups of one site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from deploy.cli.terminal import AppContext, emit, output_option, run_async
from deploy.cli.topic import _at_site, site_option

if TYPE_CHECKING:
    from broker.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in a list; `lag_records` is the sum over its partitions, None where offsets cannot be read."""

    group: str
    state: str
    protocol_type: str
    partitions: int
    lag_records: int | None


@dataclass(frozen=True, slots=True)
class GroupPartitionRow:
    """A partition with the group's committed offset; `member` is the client that it is assigned to."""

    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None
    lag_records: int | None
    member: str
    metadata: str


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, its members and its offsets."""

    group: str
    state: str
    protocol: str
    members: int
    partitions: tuple[GroupPartitionRow, ...]


@click.group("group")
def group_group() -> None:
    """Consumer groups of a site: list, describe."""


@group_group.command("list")
@site_option
@output_option
@click.pass_obj
def list_command(context: AppContext, site_name: str, output: str) -> None:
    """List a site's groups with their lag."""
    emit(run_async(_at_site(context.site(site_name), _list)), output)


@group_group.command("describe")
@site_option
@click.option("--group", required=True, help="Its id.")
@output_option
@click.pass_obj
def describe_command(context: AppContext, site_name: str, group: str, output: str) -> None:
    """Describe a group: members, committed offsets, lag."""
    emit(run_async(_at_site(context.site(site_name), lambda cluster: _describe(cluster, group))), output)


async def _list(cluster: Cluster) -> list[GroupRow]:
    from broker.client.errors import KafkaError
    from broker.client.groups import committed_offsets_of_groups, list_groups

    groups = await list_groups(cluster)
    committed = await committed_offsets_of_groups(cluster, groups)
    known = {name: offsets for name, offsets in committed.items() if not isinstance(offsets, KafkaError)}
    ends = await _log_ends(cluster, {where for offsets in known.values() for where in offsets})
    rows = []
    for name, group in sorted(groups.items()):
        offsets = known.get(name)
        lag = None
        if offsets is not None:
            lag = sum(max(0, ends[where] - c.offset) for where, c in offsets.items() if where in ends)
        rows.append(GroupRow(name, group.state.value, group.protocol_type, len(offsets or ()), lag))
    return rows


async def _describe(cluster: Cluster, name: str) -> GroupDescription:
    from broker.client.errors import KafkaError
    from broker.client.groups import committed_offsets, describe_groups
    from broker.wire.errors import ErrorCode
    from broker.wire.vocabulary import GroupState

    group = (await describe_groups(cluster, [name]))[name]
    if isinstance(group, KafkaError):
        raise group
    offsets = await committed_offsets(cluster, name)
    if group.state is GroupState.DEAD and not offsets:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name} at {cluster.site.name}")
    owners = {where: member.client_id for member in group.members for where in member.assignment}
    wanted = sorted({*offsets, *owners})
    ends = await _log_ends(cluster, set(wanted))
    rows = []
    for where in wanted:
        committed = offsets.get(where)
        end = ends.get(where)
        lag = max(0, end - committed.offset) if committed is not None and end is not None else None
        offset, metadata = (None, "") if committed is None else (committed.offset, committed.metadata)
        rows.append(GroupPartitionRow(*where, offset, end, lag, owners.get(where, ""), metadata))
    return GroupDescription(name, group.state.value, group.protocol, len(group.members), tuple(rows))


async def _log_ends(cluster: Cluster, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Log ends of those partitions that still exist; a group may keep offsets of a topic that is gone."""
    from broker.client.offsets import log_end_offsets
    from broker.client.topics import describe_topics
    from broker.wire.vocabulary import TopicPartition

    topics = await describe_topics(cluster, {topic for topic, _ in wanted})
    there = [TopicPartition(t, p) for t, p in wanted if t in topics and p < len(topics[t].partitions)]
    return {(where.topic, where.partition): end for where, end in (await log_end_offsets(cluster, there)).items()}
