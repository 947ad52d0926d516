"""Round two: the east site dies in mid-write; the failover's statement of loss is held against its disk."""

from __future__ import annotations

import time
from typing import TypeAlias

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.wire.vocabulary import TopicPartition
from deploy.demo.results import LossProof
from deploy.demo.stage import LINK, LIVE, PARTITIONS, Stage
from deploy.errors import DemoFailed
from mirror.api import load_link_state

KILL_AFTER_RECORDS = 12_000
LOOK_EVERY_RECORDS = 1_000
UNSEEN_RECORDS = 4_000
KILL_TIMEOUT_S = 120.0

Acknowledged: TypeAlias = set[tuple[int, int]]
"""(partition, offset) of every record that the writer knows to be written."""


async def second_round(stage: Stage) -> None:
    """Write, kill, fail over, then look at what was really lost."""
    seen: Acknowledged = set()
    killed = "every broker there" if stage.brokers > 1 else "the broker"
    with stage.step(f"resume the link, write departures at east, stall the mirror, kill -9 {killed} in mid-write"):
        await stage.processes.run("link", "resume", "--link", LINK, "--yes")
        await stage.processes.run("site", "thaw", "--site", "east", "--even-if-other-active", "--yes")
        await stage.create_topic(LIVE)
        await write_until_killed(stage, seen)
        stage.console.print(f"  {len(seen):,} records were acknowledged before the site died")
    with stage.step("farshore failover: fence, move the groups, verify, state the loss"):
        started_s = time.monotonic()
        outcome = await stage.command("failover", "--link", LINK, "--allow-data-loss", "--yes")
        stage.result.takeover_seconds = time.monotonic() - started_s
        if not outcome["verified"]:
            raise DemoFailed(f"the failover was not verified: {outcome['differences']}")
        stage.result.stated_loss = outcome["summary"]
        stage.result.seen_offsets = outcome["loss"]["offsets"]
        stage.result.likely_offsets = outcome["loss"]["likely_offsets"]
        stage.console.print(f"  {outcome['summary']}", highlight=False, markup=False)
    with stage.step("bring the lost site's disks back and hold the statement against it"):
        await stage.start_site("east")
        await prove_losses(stage, seen, outcome["losses"])
        stage.console.print(f"  {stage.result.loss_in_words}", highlight=False)


async def write_until_killed(stage: Stage, seen: Acknowledged) -> None:
    """A writer, and a hand on the plug once some of each partition is mirrored, and some that the mirror never saw."""
    look_at_records = KILL_AFTER_RECORDS
    kill_at_records: int | None = None
    async with (
        stage.within(KILL_TIMEOUT_S, "departures were written and mirrored"),
        stage.processes.piped("writer", "deploy.demo.live_writer", str(stage.config), "east", LIVE) as acknowledgements,
        Cluster(stage.link.target, client_id="demo") as west,
    ):
        async for line in acknowledgements:
            partition, offset = line.split()
            seen.add((int(partition), int(offset)))
            if kill_at_records is not None:
                if len(seen) >= kill_at_records:
                    break
            elif len(seen) >= look_at_records:
                look_at_records += LOOK_EVERY_RECORDS
                if await _mirrored(stage, west):
                    # The two sites rarely part in one moment: the line goes first, and the site writes on.
                    stage.stall_mirror()
                    kill_at_records = len(seen) + UNSEEN_RECORDS
        else:
            raise DemoFailed(f"the writer ended by itself; {stage.processes.log_tail('writer')}")
        await stage.kill9_site("east")
        stage.let_mirror_go_on()


async def _mirrored(stage: Stage, west: Cluster) -> bool:
    """By the offset map: the target's log end also counts the fence's markers, which stand there before any record."""
    state = await load_link_state(stage.link, west)
    ends = [state.map.mirrored_end(LIVE, number) for number in range(PARTITIONS)]
    return all(end is not None and end.source_next > 0 for end in ends)


async def prove_losses(stage: Stage, seen: Acknowledged, stated: list[dict[str, object]]) -> None:
    """Per partition: what was said, and what lies on the lost broker's disk beyond the mirrored end."""
    said = {loss["partition"]: loss for loss in stated if loss["topic"] == LIVE}
    partitions = [TopicPartition(LIVE, number) for number in range(PARTITIONS)]
    async with (
        Cluster(stage.link.source, client_id="demo") as east,
        Cluster(stage.link.target, client_id="demo") as west,
    ):
        state = await load_link_state(stage.link, west)
        ends = await log_end_offsets(east, partitions)
    for at in partitions:
        acknowledged = sum(partition == at.partition for partition, _ in seen)
        if ends[at] < acknowledged:
            raise DemoFailed(f"{at} has {ends[at]} records on disk, but {acknowledged} were acknowledged")
        mirrored = state.map.mirrored_end(at.topic, at.partition)
        mirrored_records = mirrored.source_next if mirrored else 0
        statement = said.get(at.partition)
        offsets = statement["offsets"] if statement else None
        proof = LossProof(
            at.partition,
            acknowledged,
            mirrored_records,
            int(offsets) if isinstance(offsets, int) else None,
            str(statement["certainty"]) if statement else "unknown",
            ends[at] - mirrored_records,
        )
        stage.result.losses.append(proof)
        if not proof.holds:
            raise DemoFailed(f"the statement of loss does not hold: {proof}")
