"""A repair, between two brokers and with a mirror that is killed on its way: equal in the end, and groups in place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.configs import alter_topic_configs
from broker.client.errors import KafkaError
from broker.client.groups import commit_offsets, committed_offsets, committed_offsets_of_groups
from broker.client.model import CommittedOffset, Topic
from broker.client.offsets import log_start_offsets
from broker.client.topics import delete_records, delete_topics
from broker.wire.batch import peek, renew_crc
from broker.wire.errors import ErrorCode
from broker.wire.records import Record
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from deploy.cli.terminal import ExitCode
from mirror.link import Link
from mirror.offsets.entries import GapKind, GapStatus
from mirror.offsets.operations import pause_link
from mirror.offsets.state import load_link_state, read_entries
from monitoring import limits
from monitoring.audit import repairing
from monitoring.audit.document import as_document
from monitoring.audit.freeze import freeze_link
from monitoring.audit.group_looks import freeze_groups
from monitoring.audit.model import AuditVerdict, Kind, Span
from monitoring.audit.outcome import AuditResult, Coverage, PartitionResult, RecordDifference
from monitoring.audit.ranges import comparable
from monitoring.audit.repair import Consents, GroupStays, PartitionRepair, RepairBlocker, RepairStage
from monitoring.audit.repairing import RepairRequest, carry_out, look
from monitoring.audit.store import read_repairs, write_document
from monitoring.errors import RepairStopped, RepairUnfinished
from tests.broker.running import running_server
from tests.chaos_runs.warm_commands import Said, warm_commands
from tests.mirror.harness import (
    accept_all,
    contents,
    eventually,
    link_between,
    make_topic,
    read_all,
    running,
    wait_for_records,
    write,
)

WHERE = TopicPartition("flights", 0)
PATIENCE_MS = 60_000
LOOK_MS = 20


def numbered(start: int, count: int) -> list[Record]:
    return [Record(n, 1_700_000_000_000 + start + n, b"k", b"value-%03d" % (start + n)) for n in range(count)]


@dataclass
class Stage:
    """Two sites, and what the target's log is kept in."""

    link: Link
    source: Cluster
    target: Cluster
    log: Path
    looked_at: list[list[str]] = field(default_factory=list)
    """Of which groups of the target a look asked."""

    def tamper(self) -> None:
        """As a disk, or a hand, may: one record is another one, in a batch that is whole."""
        data = bytearray(self.log.read_bytes())
        at = 0
        while b"value-013" not in data[at : at + peek(data, at).size_bytes]:
            at += peek(data, at).size_bytes
        batch = memoryview(data)[at : at + peek(data, at).size_bytes]
        found = bytes(batch).index(b"value-013")
        batch[found : found + 9] = b"other-013"
        renew_crc(batch)
        self.log.write_bytes(data)

    async def document(self, kind: Kind = Kind.CHANGED) -> dict[str, Any]:
        """Of a run that found it."""
        frozen = await freeze_link(self.link, self.source, self.target, self.target.clock.now_ms)
        difference = RecordDifference(*WHERE, kind, 0, 13, 14, 1, 1, "k", "value-013", "other-013")
        span = Span(0, 30)
        part = PartitionResult(
            *WHERE, "flights", span, span, 30, 30, 1, 1, 1, 1, 0, AuditVerdict.DIFFERS, Coverage(60, 0, is_full=True)
        )
        result = AuditResult("run-1", frozen, 1, (part,), (), (), (difference,), {kind: 1}, (), {}, {})
        return as_document(result)

    async def request(self, consents: Consents | None = None, links: Sequence[Link] = (), **more: Any) -> RepairRequest:
        return RepairRequest(self.link, await self.document(**more), links, consents or Consents())

    async def planned(self, request: RepairRequest) -> PartitionRepair:
        (one,) = (await look(request, self.source, self.target)).partitions
        return one

    async def carry_out(self, request: RepairRequest, patience_ms: int = PATIENCE_MS) -> PartitionRepair:
        told: list[str] = []
        (one,) = (await carry_out(request, self.source, self.target, told.append, patience_ms)).partitions
        return one

    async def group_at_target(self, group: str) -> int | None:
        found = (await committed_offsets(self.target, group)).get(WHERE)
        return None if found is None else found.offset

    async def is_equal(self) -> None:
        """As an audit has it: all that both sites have is the same, and at the offset that the map gives."""
        at_source, at_target = await read_all(self.source, WHERE), await read_all(self.target, WHERE)
        assert contents(at_target) == contents(at_source)
        offset_map = (await load_link_state(self.link, self.target)).map
        assert [offset_map.to_target(*WHERE, one.offset) for one in at_source] == [one.offset for one in at_target]
        frozen = await freeze_link(self.link, self.source, self.target, lambda: 1)
        (part,) = [item for item in frozen.partitions if item.topic == WHERE.topic]
        compared, left_out = comparable(part)
        assert compared is not None
        assert not left_out
        groups = await freeze_groups(self.link, frozen, self.source, self.target)
        assert groups is not None
        assert not groups.findings


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with opened(tmp_path) as found:

        async def noted(cluster: Cluster, groups: Iterable[str]) -> Any:
            names = sorted(groups)
            if cluster is found.target:
                found.looked_at.append(names)
            return await committed_offsets_of_groups(cluster, names)

        monkeypatch.setattr(repairing, "committed_offsets_of_groups", noted)
        monkeypatch.setattr(limits, "REPAIR_LOOK_INTERVAL_MS", LOOK_MS)
        yield found


@asynccontextmanager
async def opened(folder: Path, **configs: str) -> AsyncIterator[Stage]:
    async with running_server(folder / "east") as east, running_server(folder / "west") as west:
        link = link_between(east.address, west.address, ["flights"], groups=(".*",))
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await make_topic(source, "flights", 1, **configs)
            for start in (0, 10, 20):
                await write(source, WHERE, numbered(start, 10))
            log = folder / "west" / "flights-0" / f"{0:020}.log"
            yield Stage(link, source, target, log)


async def test_what_differs_is_mirrored_anew_whenever_it_is_cut_short(stage: Stage) -> None:
    await commit_offsets(stage.source, "analysts", {WHERE: CommittedOffset(12)})
    async with running(stage.link):
        await wait_for_records(stage.target, WHERE, 30)

        async def carried() -> bool:
            return await stage.group_at_target("analysts") is not None

        await eventually(carried, "the group at the target")
        stage.tamper()
        assert contents(await read_all(stage.target, WHERE)) != contents(await read_all(stage.source, WHERE))
        request = replace(await stage.request(), why="by a test")
        one = await stage.planned(request)
        assert (one.stage, one.blockers, one.records_again) == (RepairStage.NOT_ASKED, (), 30)
        assert [(place.group, place.stays) for place in one.groups] == [("analysts", None)]
        with pytest.raises(RepairUnfinished):
            await stage.carry_out(request, 0)
    with pytest.raises(RepairUnfinished):  # no mirror runs: nothing is deleted, and nothing else is in the way
        await stage.carry_out(request, 0)
    await waits_for_who_stands_there(stage, request)
    async with running(stage.link):
        await by_command(stage, request.document)
        done = await stage.carry_out(request)
        assert (done.stage, done.blockers) == (RepairStage.OLD_COPY_DELETED, ())
        await stage.is_equal()
        starts = await log_start_offsets(stage.target, [WHERE])
        assert starts[WHERE] == done.deleted_to
        await write(stage.source, WHERE, numbered(30, 5))
        await wait_for_records(stage.target, WHERE, 35)
        assert (await stage.carry_out(request)).stage is RepairStage.OLD_COPY_DELETED, "it is done, and not done again"
        await stage.is_equal()
        await made_anew_at_the_target(stage, request)
        await refusals(stage)
    entries = await read_entries(stage.link, stage.target)
    assert not entries.acceptances
    asked = [gap for gap in entries.gaps.values() if gap.kind is GapKind.MIRRORED_ANEW]
    assert {(gap.status, gap.detail) for gap in asked} == {(GapStatus.PASSED, "repair of audit run-1, by a test")}


async def waits_for_who_stands_there(stage: Stage, request: RepairRequest) -> None:
    """All groups of the target are asked for once, and not at each look."""
    await make_topic(stage.target, "elsewhere")
    await commit_offsets(stage.target, "elsewhere", {TopicPartition("elsewhere", 0): CommittedOffset(0)})
    stage.looked_at.clear()

    async def looks() -> bool:
        return len(stage.looked_at) > 2

    waiting = asyncio.create_task(stage.carry_out(request))
    await eventually(looks, "it to look again")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert stage.looked_at[:3] == [["analysts", "elsewhere"], ["analysts"], ["analysts"]]


async def by_command(stage: Stage, document: Mapping[str, Any]) -> None:
    """As an operator: the plan, and then all of it up to the audit, for which there is no Spark here."""
    folder, link = stage.log.parents[2], stage.link
    write_document(document, folder / "audits")
    (folder / "farshore.toml").write_text(
        "".join(
            f'[sites.{site.name}]\nbootstrap_servers = "{site.bootstrap_servers}"\n'
            for site in (link.source, link.target)
        )
        + f'[[links]]\nname = "{link.name}"\nsource = "east"\ntarget = "west"\ntopics = ["flights"]\n'
        + 'topic_names = "same"\ngroups = [".*"]\n'
    )

    async def run(line: str) -> Said:
        arguments = ["--config", str(folder / "farshore.toml"), "audit", *line.split(), "--output-dir", "audits"]
        return await asyncio.to_thread(warm_commands().run, arguments, folder)

    shown = await run("repair run-1 --out plan.json -o json")
    assert shown.code == ExitCode.DONE, shown.err
    (planned,) = json.loads(shown.out)["partitions"]
    assert (planned["topic"], planned["found"], planned["blockers"]) == ("flights", {"changed": 1}, [])
    assert json.loads((folder / "plan.json").read_text())["partitions"] == [planned]
    said = await run(
        "repair run-1 --partition flights:0 --yes --reason disk --master spark://127.0.0.1:9 --jars farshore.toml"
    )
    assert said.code == ExitCode.ERROR, said.err
    assert "no Spark master answers" in said.err
    (repair,) = read_repairs(folder / "audits", "run-1")
    assert (repair["reason"], repair["audit"], repair["partitions"][0]["topic"]) == ("disk", None, "flights")


async def made_anew_at_the_target(stage: Stage, request: RepairRequest) -> None:
    """Of a topic that is another one by now nothing is deleted for what was asked of the one before."""
    assert not await delete_topics(stage.target, [WHERE.topic])

    async def stands_still() -> bool:
        return bool((await read_entries(stage.link, stage.target)).open_gaps())

    await eventually(stands_still, "the mirror sees it")
    assert (await stage.planned(request)).in_the_way is RepairBlocker.STANDS_STILL
    await accept_all(stage.link, stage.target, "op")
    await wait_for_records(stage.target, WHERE, 35)
    assert (await stage.planned(request)).stage is RepairStage.NOT_ASKED
    stage.looked_at.clear()
    assert (await stage.carry_out(request)).stage is RepairStage.OLD_COPY_DELETED, "what was asked before is done"
    assert stage.looked_at[-2:] == [["analysts", "elsewhere"]] * 2, "who came meanwhile is seen before the deletion"


async def refusals(stage: Stage) -> None:
    """What is in the way of the next repair, as both sites show it; the mirror runs."""
    await commit_offsets(stage.target, "its own", {WHERE: CommittedOffset(40)})
    await delete_records(stage.source, {WHERE: 5})
    onward = replace(
        stage.link, name="west-north", source=stage.link.target, target=replace(stage.link.target, name="n")
    )
    one = await stage.planned(await stage.request(kind=Kind.EXTRA, links=[stage.link, onward]))
    assert one.stage is RepairStage.NOT_ASKED, "what was repaired before this run says nothing of it"
    stays = (RepairBlocker.ONLY_AT_TARGET, RepairBlocker.GROUPS_STAY)
    assert (one.blockers, one.only_at_target) == ((RepairBlocker.MIRRORED_ON, *stays), 5 + 1)
    assert {place.group: place.stays for place in one.groups} == {
        "analysts": None,
        "its own": GroupStays.NOT_CARRIED,
    }
    consents = Consents(loses_data=True, leaves_groups=frozenset({"its own"}))
    allowed = await stage.request(consents, kind=Kind.EXTRA)
    assert not (await stage.planned(allowed)).blockers
    for policy, blockers in (("compact", (RepairBlocker.COMPACTED,)), ("compact,delete", ())):
        changes = [("cleanup.policy", ConfigOperation.SET, policy)]
        assert not await alter_topic_configs(stage.target, {"flights": changes})
        assert (await stage.planned(allowed)).blockers == blockers
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(repairing, "describe_each_topic", no_leader)
        assert (await stage.planned(allowed)).in_the_way is RepairBlocker.SITE_DID_NOT_SAY, (
            "nobody says it is not there"
        )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(repairing, "describe_topic_configs", no_configs)
        assert (await stage.planned(allowed)).blockers == (RepairBlocker.CONFIGS_NOT_KNOWN,)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(repairing, "committed_offsets_of_groups", no_coordinator)
        away = await stage.planned(allowed)
        assert (away.blockers, away.is_retriable) == ((RepairBlocker.GROUPS_NOT_KNOWN,), True)
    await pause_link(stage.link, stage.target, "op")
    with pytest.raises(RepairStopped, match="link stopped"):
        await stage.carry_out(allowed)
    assert not (await read_entries(stage.link, stage.target)).acceptances


async def no_configs(_cluster: Cluster, names: Iterable[str]) -> dict[str, KafkaError]:
    return {name: KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, name) for name in names}


async def no_coordinator(_cluster: Cluster, groups: Iterable[str]) -> dict[str, KafkaError]:
    return {group: KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, group) for group in groups}


async def no_leader(_cluster: Cluster, names: Iterable[str]) -> tuple[dict[str, Topic], dict[str, KafkaError]]:
    return {}, {name: KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, name) for name in names}
