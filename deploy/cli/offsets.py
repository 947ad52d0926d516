"""`farshore offsets`: what an offset at one site is at the other."""

from __future__ import annotations

import click

from broker.client.cluster import Cluster
from deploy.cli.terminal import AppContext, emit, output_option, run_async
from mirror.offsets.state import LinkState, load_partial_state
from mirror.translation import translate_offset


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

    An offset without a record of its own (compacted, aborted, a marker) becomes that of the next mirrored record; in a
    topic that a link back carries, too, it is refused, as what is there may be that link's.
    """
    link = context.link(link_name)

    async def load() -> LinkState:
        async with Cluster(link.target, client_id="farshore-cli") as target:
            return await load_partial_state(link, target, only={(topic, partition)})

    emit(translate_offset(link, run_async(load()), topic, partition, offset, reverse=reverse), output)
