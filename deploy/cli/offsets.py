"""`farshore offsets`: what an offset at one site is at the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from deploy.cli.terminal import AppContext, emit, output_option, run_async

if TYPE_CHECKING:
    from mirror.link import Link
    from mirror.offsets.offset_map import OffsetMap


@dataclass(frozen=True, slots=True)
class Translation:
    """One offset at both sites. Topics by their names at each."""

    link: str
    source_topic: str
    target_topic: str
    partition: int
    source_offset: int
    target_offset: int


@click.group("offsets")
def offsets_group() -> None:
    """Offsets of mirrored partitions: translate."""


@offsets_group.command("translate")
@click.option("--link", "link_name", metavar="LINK", help="The link (default: the only one).")
@click.option("--topic", required=True, help="The topic, by its name at the source.")
@click.option("--partition", type=click.IntRange(0), required=True, help="The partition.")
@click.option("--offset", type=click.IntRange(0), required=True, help="The offset at the source.")
@click.option("--reverse", is_flag=True, help="The offset is one at the target: translate it to the source's.")
@output_option
@click.pass_obj
def translate_command(
    context: AppContext, link_name: str | None, topic: str, partition: int, offset: int, reverse: bool, output: str
) -> None:
    """Translate an offset exactly, or say that it cannot be.

    An offset without a record of its own (compacted, aborted, a marker) becomes that of the next mirrored record.
    """
    link = context.link(link_name)
    emit(run_async(_translate(link, topic, partition, offset, reverse)), output)


async def _translate(link: Link, topic: str, partition: int, offset: int, reverse: bool) -> Translation:
    from broker.client.cluster import Cluster
    from mirror.offsets.state import load_link_state

    async with Cluster(link.target, client_id="farshore-cli") as target:
        offset_map = (await load_link_state(link, target)).map
    translate = offset_map.to_source if reverse else offset_map.to_target
    found = translate(topic, partition, offset)
    if found is None:
        raise _untranslated(link, offset_map, topic, partition, offset, reverse)
    source, target_offset = (found, offset) if reverse else (offset, found)
    return Translation(link.name, topic, link.target_topic(topic), partition, source, target_offset)


def _untranslated(
    link: Link, offset_map: OffsetMap, topic: str, partition: int, offset: int, reverse: bool
) -> Exception:
    from mirror.errors import OffsetNotMirrored

    end = offset_map.mirrored_end(topic, partition)
    site = link.target.name if reverse else link.source.name
    if end is None:
        text = f"link {link.name} has mirrored nothing of {topic} partition {partition}"
        return OffsetNotMirrored(text, f"see what it mirrors with `farshore link describe --link {link.name}`")
    first = min(i.target_start if reverse else i.source_start for i in offset_map.intervals(topic, partition))
    last = end.target_next if reverse else end.source_next
    mirrored = f"offsets {first} to {last} are" if last > first else "no record of the partition is yet"
    return OffsetNotMirrored(f"offset {offset} of {topic} partition {partition} at {site} is not mirrored: {mirrored}")
