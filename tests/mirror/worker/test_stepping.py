"""A link that brings nothing to a topic that others write: its end goes along with the target's log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.intervals import End
from mirror.offsets.state import load_link_state
from tests.broker.running import running_broker
from tests.mirror.harness import eventually, link_between, make_topic, running, some_records, wait_for_records, write

WHERE = TopicPartition("flights", 0)


async def test_nobody_reads_again_what_others_wrote_and_the_map_stays_exact(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "east") as east, running_broker(tmp_path / "west") as west:
        there = replace(link_between(east, west, ["flights"], name="east-west"), shared_targets=True)
        back = replace(there, name="west-east", source=there.target, target=there.source)
        links = replace(there, reverse_links=(back,)), replace(back, reverse_links=(there,))
        async with Cluster(there.source) as at_east, Cluster(there.target) as at_west:
            await make_topic(at_east, "flights")
            await make_topic(at_west, "flights")
            async with running(*links):
                for number in range(3):
                    await write(at_east, WHERE, some_records(5 * number, 5))
                    await wait_for_records(at_west, WHERE, 5 * number + 5)

                    async def stepped() -> bool:
                        end = (await log_end_offsets(at_east, [WHERE]))[WHERE]
                        known = (await load_link_state(links[1], at_east)).entries.checkpoints
                        return WHERE in known and known[WHERE].end == End(0, end)

                    await eventually(stepped, "the link back to stand behind what was written")
                await write(at_west, WHERE, some_records(100, 1))
                records = await wait_for_records(at_east, WHERE, 16)
                assert records[-1].value == some_records(100, 1)[0].value
                at_source = (await log_end_offsets(at_west, [WHERE]))[WHERE] - 1

                async def known() -> bool:
                    state = await load_link_state(links[1], at_east)
                    return state.map.to_target(*WHERE, at_source) == records[-1].offset

                await eventually(known, "the map to know the record")
