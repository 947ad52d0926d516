"""Where a link back is declared the last mirrored record is compared all the same: behind it are the target's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.wire.batch import ATTRIBUTES_OFFSET, compute_crc, iter_batches
from failover.planning.plan import plan_switchover
from failover.running.verification import DifferenceKind
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, mirrored, two_sites
from tests.mirror.harness import running, some_records, wait_for_records, write

CRC_BYTES = 4


def flip_last_byte_of(log: Path, offset: int) -> None:
    """Of the value of a record that is its batch's last one, with a checksum that fits."""
    data = bytearray(log.read_bytes())
    at = 0
    for header, batch in iter_batches(bytes(data)):
        stop = at + len(batch)
        if header.next_offset == offset + 1:
            data[stop - 2] ^= 1  # behind it is the count of headers
            data[at + ATTRIBUTES_OFFSET - CRC_BYTES : at + ATTRIBUTES_OFFSET] = compute_crc(data[at:stop]).to_bytes(
                CRC_BYTES, "big"
            )
            log.write_bytes(data)
            return
        at = stop
    raise AssertionError(f"no batch of {log} ends at {offset}")


async def test_a_flipped_byte_of_the_last_mirrored_record_is_found_behind_which_the_target_has_its_own(
    tmp_path: Path,
) -> None:
    """Where a link back was declared no record was compared, and nothing said so."""
    async with two_sites(tmp_path) as stage:
        there = replace(stage.link, shared_targets=True)
        back = replace(there, name=f"{there.name}-back", source=there.target, target=there.source)
        stage.link = replace(there, reverse_links=(back,))
        async with mirrored(stage), running(replace(back, reverse_links=(there,))):
            for at in PARTITIONS:
                await write(stage.target, at, some_records(5_000, 3))
                await wait_for_records(stage.source, at, RECORDS + 3)
            plan = plan_switchover(await stage.sites.look())
            last = {view.partition: view.last_mirrored for view in plan.snapshot.partitions}
            assert last[0] is not None
            assert last[0][0] == RECORDS - 1
            flip_last_byte_of(next((tmp_path / "west").rglob(f"{TOPIC}-0/*.log")), last[0][1])
            result = await stage.run(plan, stage.sites)
    assert [(one.kind, one.subject, one.partition) for one in result.differences] == [
        (DifferenceKind.LAST_RECORD, TOPIC, 0)
    ]
    assert result.not_compared_partitions == ()
