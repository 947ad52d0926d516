"""Groups whose next records the target has no more, as its retention or somebody took them, and the source has still.

Their offsets are exact, and are carried over: who moves them goes by that. But a consumer that begins there is told
OFFSET_OUT_OF_RANGE, and goes on where `auto.offset.reset` sends it: at the log's end, if nobody says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.client.fanout import split_failures
from broker.client.offsets import list_each_offset
from broker.wire.vocabulary import EARLIEST, TopicPartition
from mirror.groups.decisions import GroupDecision, Translator
from mirror.offsets.group_entries import SETTLED


async def tell_before_logs(
    planned: Mapping[str, Sequence[GroupDecision]],
    source: Cluster,
    target: Cluster,
    offset_map: Translator,
    starts: dict[TopicPartition, int],
) -> dict[str, list[GroupDecision]]:
    """The decisions, which say so. `starts`: where the target's logs began when they last said it; it is added to, as a
    start goes up alone. Raises ClientError when no broker of a site answers at all.
    """
    settled = [d for of_group in planned.values() for d in of_group if d.action in SETTLED]
    starts |= await _starts(target, {d.target for d in settled})
    lost = {(d.group, d.source): d for d in settled if _is_lost(d, offset_map, starts.get(d.target, 0))}
    # Where its source has them no more either, the group goes on there as it would here.
    at_source = await _starts(source, {d.source for d in lost.values()})
    told = {key for key, d in lost.items() if d.source_offset >= at_source.get(d.source, 0)}
    return {
        group: [replace(d, is_before_log=(d.group, d.source) in told) for d in of_group]
        for group, of_group in planned.items()
    }


def _is_lost(decision: GroupDecision, offset_map: Translator, start: int) -> bool:
    goes_to = decision.target_offset or 0
    return goes_to < start and offset_map.has_record(*decision.source, goes_to, start)


async def _starts(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Of those that say it."""
    wanted = dict.fromkeys(partitions, EARLIEST)
    found, _ = split_failures(await list_each_offset(cluster, wanted)) if wanted else ({}, {})
    return {where: at.offset for where, at in found.items()}
