"""East comes back with an older disk: each way back there is refused, and the way on of the runbook loses nothing."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import Result

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import read_records
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from deploy.cli.terminal import ExitCode
from mirror import looking
from mirror.offsets.operations import promote_link
from mirror.offsets.state import read_entries
from mirror.worker import parted
from tests.deploy.cli.test_failback import command, wait_for_worker
from tests.deploy.cli.test_stranded import WHERE, Operator
from tests.deploy.test_runbook import written
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import (
    contents,
    eventually,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)

OLDER, SINCE, NEWER, OWN = 20, 12, 9, 5
"""Records of the older disk, that east had more when it was lost, that west wrote since, and east when it was back."""
CARRIED, READING = "carried", "reading"
"""Groups: one that stands at west where the link had carried it, and one that reads there."""


@dataclass
class OlderDisk:
    """East as it came back."""

    operator: Operator
    east: FarshoreBroker
    at_west: list[tuple[object, ...]]
    next_records: list[tuple[object, ...]]
    """Of the groups, at west."""

    def begin_anew(self) -> None:
        """East with empty disks, at the same address."""
        self.east.stop()
        shutil.rmtree(self.east.data_dir)
        self.east.start()


async def next_records(cluster: Cluster) -> list[tuple[object, ...]]:
    end = (await log_end_offsets(cluster, [WHERE]))[WHERE]
    found: list[tuple[object, ...]] = []
    for group in (CARRIED, READING):
        offset = (await committed_offsets(cluster, group))[WHERE].offset
        found.append(next(iter([tuple(r)[1:] async for r in read_records(cluster, WHERE, offset, end)]), ()))
    return found


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[OlderDisk]:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        operator = Operator(tmp_path, east.bootstrap, west.bootstrap)
        asyncio.run(mirror(operator, 0, OLDER))
        east.stop()
        shutil.copytree(east.data_dir, tmp_path / "older")
        east.start()
        asyncio.run(mirror(operator, 100, SINCE))
        at_west, following = asyncio.run(go_on(operator))
        east.kill9()
        shutil.rmtree(east.data_dir)
        (tmp_path / "older").rename(east.data_dir)
        east.start()
        yield OlderDisk(operator, east, at_west, following)


async def mirror(operator: Operator, start: int, count: int) -> None:
    async with Cluster(operator.link.source) as east, Cluster(operator.link.target) as west:
        if not start:
            await make_topic(east, WHERE.topic)
        await write(east, WHERE, some_records(start, count))
        async with running(operator.link):
            await wait_for_records(west, WHERE, OLDER + count if start else count)
            if start:
                await commit_offsets(east, CARRIED, {WHERE: CommittedOffset(OLDER + 2)})
                await eventually(lambda: is_carried(west), "the group to be carried")


async def is_carried(west: Cluster) -> bool:
    return WHERE in await committed_offsets(west, CARRIED)


async def go_on(operator: Operator) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """West is promoted, and written to; a group stands amid what the older disk lacks."""
    async with Cluster(operator.link.target) as west:
        await promote_link(operator.link, west, "failover-1")
        await write(west, WHERE, some_records(200, NEWER))
        offset = [record.offset for record in await read_all(west, WHERE)][OLDER + 4]
        await commit_offsets(west, READING, {WHERE: CommittedOffset(offset)})
        return contents(await read_all(west, WHERE)), await next_records(west)


def test_each_way_back_is_refused_and_names_what_is_missing(lost: OlderDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = lost.operator
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        asyncio.run(brought(operator, OLDER + NEWER))
        refused = operator.run("failback --link east-west --dry-run -o json", ExitCode.REFUSED)
        plan = json.loads(refused.stdout)
        (lacks,) = plan["source_lacks"]
        assert plan["refusals"] == ["source_lacks"]
        assert (lacks["topic"], lacks["partition"], lacks["from_offset"]) == (*WHERE, OLDER)
        for line in ("failback --link east-west --yes", "switchover --link west-east --yes"):
            told = " ".join(operator.run(line, ExitCode.REFUSED).stderr.split())
            assert f"east has lost what was mirrored from its offsets {OLDER} to" in told
        moved = json.loads(operator.run("switchover --link west-east --yes -o json", ExitCode.REFUSED).stdout)
        assert [(one["reason"], one["subject"]) for one in moved["refusals"]] == [("target_lacks", "flights-0")]
        line = "failover --link west-east --even-if-source-answers --dry-run"
        dry = json.loads(operator.run(f"{line} -o json", ExitCode.REFUSED).stdout)
        assert ("target_lacks", "flights-0") in [(one["reason"], one["subject"]) for one in dry["refusals"]]
        told = " ".join(operator.run(f"{line} --allow-data-loss").stdout.split())
        assert "no link brings what east had before: flights-0: east has lost what was mirrored from its" in told
        drilled = json.loads(operator.run("drill --link west-east -o json", ExitCode.FINDINGS).stdout)["items"][0]
        assert "target_lacks" in [one["kind"] for one in drilled["findings"]]
        told = " ".join(operator.run("link resume --link east-west --dry-run").stderr.split())
        assert "the link is going to stand still, and ask: flights-0: east has lost" in told
        at_east = asyncio.run(look_at_east(operator))[0]
        check_what_is_told(operator, [one for one in lost.at_west if one not in at_east])
        monkeypatch.setattr(looking, "LACKS_LOOK_MS", 0)
        monkeypatch.setattr(parted, "PARTED_LOOK_MS", 0)
        check_what_is_not_known(operator)


FAILOVER = "failover --link west-east --even-if-source-answers --dry-run --allow-data-loss"
TOLD = {
    "status --link east-west": ExitCode.FINDINGS,
    "stranded list --link east-west": ExitCode.DONE,
    "stranded list --link west-east": ExitCode.FINDINGS,
    "stranded leave --link west-east --dry-run": ExitCode.REFUSED,
    "drill": ExitCode.FINDINGS,
    "failback --link east-west --dry-run": ExitCode.REFUSED,
    "switchover --link west-east --dry-run": ExitCode.REFUSED,
    "switchover --from west --to east --dry-run": ExitCode.REFUSED,
    FAILOVER: ExitCode.DONE,
    FAILOVER.replace("--link west-east", "--from west --to east"): ExitCode.DONE,
    "link resume --link east-west --dry-run": ExitCode.DONE,
}
"""All that says what east lacks, with its exit code."""
NO_LOSS = ("nothing is lost", "west has no record that", "west-east: if the source died now, likely 0", " 0 records")


def words(result: Result) -> str:
    return " ".join(f"{result.stdout} {result.stderr}".split())


def check_what_is_told(operator: Operator, lacked: list[tuple[object, ...]]) -> None:
    """By every command the same, and what both logs say."""
    assert len(lacked) == SINCE
    for line, code in TOLD.items():
        told = words(operator.run(line, code))
        assert f"{WHERE.topic}-{WHERE.partition}" in told, line
        assert f"its offsets {OLDER} to " in told, line
        assert not [text for text in NO_LOSS if text in told], told
    plan = json.loads(operator.run(f"{FAILOVER} -o json").stdout)
    assert (plan["loss"]["records"], plan["loss"]["lacked_records"]) == (len(lacked), len(lacked))
    (loss,) = plan["losses"]
    span = range(loss["first_offset"], loss["end_offset"])
    at_west = asyncio.run(whole_log(operator))
    assert [one for offset, one in at_west if offset in span] == lacked
    assert f"{len(lacked)} records that the target had before, and lost" in words(operator.run(FAILOVER))


def check_what_is_not_known(operator: Operator) -> None:
    """Where nothing could be compared nobody says that all is there, nor that something is missing."""
    lines = [line for line in TOLD if line.startswith(("status", "stranded list", "drill", "fail"))]
    for line in lines:
        code = ExitCode.FINDINGS if line.startswith("stranded") else TOLD[line]
        told = words(operator.run(line, code))
        assert "not known" in told, line
        assert not [text for text in (*NO_LOSS, "has lost what was mirrored") if text in told], line
    plan = json.loads(operator.run(f"{FAILOVER} -o json").stdout)
    assert (plan["loss"]["certainty"], plan["loss"]["records"]) == ("at_least", None)


async def whole_log(operator: Operator) -> list[tuple[int, tuple[object, ...]]]:
    async with Cluster(operator.link.target) as west:
        return [(record.offset, contents([record])[0]) for record in await read_all(west, WHERE)]


async def brought(operator: Operator, count: int) -> None:
    async with Cluster(operator.link.source) as east:
        await wait_for_records(east, WHERE, count)


def test_the_way_on_as_the_runbook_has_it_loses_nothing(lost: OlderDisk) -> None:
    operator = lost.operator
    own = asyncio.run(write_at_east(operator, OWN))
    saved = operator.folder / "saved"
    export, leave, _, export_left, standby, replay, run_back, failback, run_there, resume = [
        line.replace("DIR", str(saved)) for line in written("An older disk")
    ]
    told = json.loads(operator.run("stranded list --link east-west -o json").stdout)
    assert [step["command"] for step in told["next"] if step["command"]] == [
        "farshore stranded export --link east-west --to DIR",
        "farshore mirror run --link west-east",
        "farshore stranded list --link east-west",
        "farshore stranded leave --link east-west",
        f"farshore {standby}",
    ], "and no failback, which is refused"
    operator.run(export)
    assert json.loads((saved / "manifest.json").read_text())["ranges"][0]["records"] == OWN
    operator.run(leave)
    operator.run(export_left.replace(str(saved), str(operator.folder / "left")))
    assert json.loads((operator.folder / "left" / "manifest.json").read_text())["ranges"][0]["records"] == OWN
    lost.begin_anew()
    operator.run(f"{standby} --yes")
    operator.run(f"{replay} --yes")
    with command(operator, *run_back.split()), command(operator, *run_there.split()):
        wait_for_worker(operator)
        result = json.loads(operator.run(f"{failback} --yes -o json").stdout)
    assert [(one["topic"], one["partition"]) for one in result["stands_still"]] == [tuple(WHERE)]
    stands = result["next"][-1]
    assert stands["what"].startswith("link east-west stands still at flights-0, as its log at east is another one than")
    assert f"{stands['command']} --yes" == f"farshore {resume} --yes"
    assert result["switchover"]["verified"] is True
    at_east, following = asyncio.run(look_at_east(operator))
    assert at_east[: len(lost.at_west)] == lost.at_west
    assert [one[:2] for one in at_east[len(lost.at_west) :]] == [one[:2] for one in own]
    assert following == lost.next_records
    with command(operator, *run_there.split()):
        asyncio.run(eventually(lambda: stands_still(operator), "the link to stand still"))
        (shown,) = json.loads(operator.run(f"{resume} --dry-run -o json").stdout)["outlooks"]
        assert shown["meaning"] == (
            "the target keeps the old topic's records, and the new topic's are mirrored behind them; but for what a "
            "link back brought there: west has that, and nothing of it is repeated"
        )
        operator.run(f"{resume} --yes")
        asyncio.run(write_at_east(operator, 1, 950))
        asyncio.run(check_west(operator, [*at_east, *contents(some_records(950, 1))]))


async def stands_still(operator: Operator) -> bool:
    async with Cluster(operator.link.target) as west:
        return bool((await read_entries(operator.link, west)).open_gaps())


async def check_west(operator: Operator, expected: list[tuple[object, ...]]) -> None:
    async with Cluster(operator.link.target) as west:
        assert contents(await wait_for_records(west, WHERE, len(expected))) == expected


async def write_at_east(operator: Operator, count: int, start: int = 900) -> list[tuple[object, ...]]:
    async with Cluster(operator.link.source) as east:
        await write(east, WHERE, some_records(start, count))
    return contents(some_records(start, count))


async def look_at_east(operator: Operator) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    async with Cluster(operator.link.source) as east:
        return contents(await read_all(east, WHERE)), await next_records(east)
