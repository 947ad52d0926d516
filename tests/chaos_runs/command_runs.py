"""Switchover, failover and audit between clusters of three, of which brokers die while the command runs.

Whatever it says must be true: done is what is there, and refused has changed nothing and goes well later.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from broker.client.cluster import Cluster
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from deploy.demo.stage import spark_jars
from mirror.offsets.entries import RunState
from mirror.offsets.state import read_entries
from tests.chaos_runs.content_runs import SETTLE_TIMEOUT
from tests.chaos_runs.looking import content_of, read_committed
from tests.chaos_runs.mirror_process import Operator
from tests.chaos_runs.readers import reading
from tests.chaos_runs.replicated_runs import ReplicatedRun
from tests.chaos_runs.warm_commands import Said
from tests.chaos_runs.writers import Writer
from tests.interop.servers import ROOT

TRIES = 3
REFUSED = 3
FINDINGS = 4
KILLS = 2
AUDIT_TIMEOUT_S = 600.0
FAILOVER = ("failover", "--allow-data-loss", "--even-if-source-answers", "--even-if-source-partly-there")


class CommandRun(ReplicatedRun):
    """Records are written for a while; then a command runs, and meanwhile brokers die that have a role."""

    command: Sequence[str]
    first_kill_s: float = 6.0
    """The command's brokers die from its first moment until then."""

    async def disturb(self, operator: Operator, proxies: Mapping[str, Any]) -> None:
        (group,) = self.groups
        with reading(self.source.bootstrap, group, self.topic) as self.reader:
            until = ("status", "--until", "healthy", "--timeout", SETTLE_TIMEOUT)
            began = await asyncio.to_thread(operator.farshore, *until)
            assert began.code == 0, began.err
            await asyncio.sleep(self.length_s)

    async def check(self, operator: Operator, writers: list[Writer]) -> None:
        await self.prepare(operator)
        said = await self._run_disturbed(operator)
        for _ in range(TRIES):
            await self.judge(operator, said)
            if said.code == 0 or self.result.problems:
                break
            said = await self._farshore(operator)
        if said.code:
            self.result.problems.append(f"never done: {said.code} {said.err[-600:]}")
        await self.compare(operator, writers)

    async def prepare(self, operator: Operator) -> None:
        """What comes before the command."""

    async def judge(self, operator: Operator, said: Said) -> None:
        """Whether the command said the truth; what it said is a problem of the run if not."""
        raise NotImplementedError

    async def _run_disturbed(self, operator: Operator) -> Said:
        running = asyncio.create_task(self._farshore(operator))
        for _ in range(self.chance.randint(1, KILLS)):
            await asyncio.sleep(self.chance.uniform(0.0, self.first_kill_s))
            if running.done():
                break
            await self.chance.choice((self.kill_source, self.kill_target, self.kill_both))()
        return await running

    async def kill_source(self) -> None:
        await self.kill(self.source)

    async def kill_target(self) -> None:
        await self.kill(self.target)

    async def kill_both(self) -> None:
        await self.both(self.kill)

    async def _farshore(self, operator: Operator) -> Said:
        started_s = time.monotonic()
        said = await asyncio.to_thread(self.say, operator)
        with (self.folder / "said.txt").open("a") as log:
            took_s = time.monotonic() - started_s
            log.write(f"--- {self.command[0]}: {said.code} after {took_s:.1f} s\n{said.err}\n{said.out}\n")
        word = {0: "done", 1: "failed", REFUSED: "refused", FINDINGS: "findings"}.get(said.code, str(said.code))
        self.note(f"{self.command[0]}-{word}")
        return said

    def say(self, operator: Operator) -> Said:
        """Run the command to its end."""
        return operator.farshore(*self.command)

    async def is_promoted(self, operator: Operator) -> bool:
        async with Cluster(self.target.site) as west:
            run = (await read_entries(operator.link, west)).run
        return run is not None and run.state is RunState.PROMOTED


class SwitchoverRun(CommandRun):
    command = ("switchover", "--yes", "-o", "json")

    async def judge(self, operator: Operator, said: Said) -> None:
        problems = self.result.problems
        if said.code == 0:
            result = json.loads(said.out)
            if not result["verified"] or result["loss"]["offsets"] or result["loss"]["certainty"] != "exact":
                problems.append(f"done, and not verified without a loss: {said.out[-600:]}")
            if not await self.is_promoted(operator):
                problems.append("done, and the link is not promoted")
        elif not said.err.strip():
            problems.append(f"ended with {said.code} without a word")
        elif said.code == REFUSED and await self.is_promoted(operator) and "journal" not in said.err:
            problems.append(f"refused, and the link is promoted: {said.err[-600:]}")

    async def compare(self, operator: Operator, writers: list[Writer]) -> None:
        await super().compare(operator, writers)
        said = await asyncio.to_thread(operator.farshore, "link", "resume", "--yes")
        if said.code:
            self.result.problems.append(f"no way back: {said.err[-600:]}")
        await self.settle(operator)


class FailoverRun(CommandRun):
    """The mirror is gone before all is mirrored: what is said to be lost is what the target does not have."""

    command = (*FAILOVER, "--yes", "-o", "json")
    first_kill_s = 1.2

    async def disturb(self, operator: Operator, proxies: Mapping[str, Any]) -> None:
        await super().disturb(operator, proxies)
        operator.kill_mirrors()
        await asyncio.sleep(1.0)

    async def judge(self, operator: Operator, said: Said) -> None:
        problems = self.result.problems
        if said.code and not said.err.strip() and not said.out.strip():
            problems.append(f"ended with {said.code} without a word")
        if said.code:
            return
        result = json.loads(said.out)
        if not result["verified"] or not await self.is_promoted(operator):
            problems.append(f"done, and not verified or not promoted: {said.out[-600:]}")
        self.losses = {TopicPartition(loss["topic"], loss["partition"]): loss for loss in result["losses"]}

    async def compare(self, operator: Operator, writers: list[Writer]) -> None:
        problems = self.result.problems
        async with Cluster(self.source.site) as east, Cluster(self.target.site) as west:
            for where in self.partitions:
                source, target = await read_committed(east, where), await read_committed(west, where)
                self.result.records += len(source)
                problems += [f"{where}: {wrong}" for wrong in false_words(self.losses[where], source, target)]
        problems += await self.problems_of_logs()


def false_words(loss: Mapping[str, Any], source: Sequence[Record], target: Sequence[Record]) -> list[str]:
    """A loss statement against both logs. A target that is no beginning of its source is wrong whatever it says."""
    at_source, at_target = list(map(content_of, source)), list(map(content_of, target))
    wrong = []
    if at_source[: len(at_target)] != at_target:
        wrong.append("the target is no beginning of the source")
    lost = source[len(target) :]
    if loss["certainty"] == "unknown":
        return wrong
    first, end = loss["first_offset"], loss["end_offset"]
    if lost and first > lost[0].offset:
        wrong.append(f"{lost[0].offset} is lost, and said to be there: {loss}")
    if target and source[len(target) - 1].offset >= first:
        wrong.append(f"{source[len(target) - 1].offset} is there, and said to be lost: {loss}")
    if lost and loss["certainty"] == "exact" and lost[-1].offset >= end:
        wrong.append(f"{lost[-1].offset} is lost, and not said: {loss}")
    if loss["certainty"] == "exact" and loss["records"] not in (None, len(lost)):
        wrong.append(f"{len(lost)} records are lost: {loss}")
    return wrong


class AuditRun(CommandRun):
    """Equal copies: an audit says so, or that it did not compare all."""

    first_kill_s = 15.0

    @property
    def command(self) -> Sequence[str]:  # type: ignore[override]
        jars = [option for jar in spark_jars() for option in ("--jars", jar)]
        return ("audit", "run", "--master", "local[2]", *jars, "--output-dir", str(self.folder / "audit"), "-o", "json")

    async def prepare(self, operator: Operator) -> None:
        await self.settle(operator)

    def say(self, operator: Operator) -> Said:
        """Spark takes longer than the other commands may."""
        argv = [sys.executable, "-m", "deploy.cli", "--config", str(operator.config), *self.command]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=AUDIT_TIMEOUT_S, check=False)
        return Said(done.returncode, done.stdout, done.stderr)

    async def judge(self, operator: Operator, said: Said) -> None:
        problems = self.result.problems
        if said.code in (0, FINDINGS):
            document = json.loads(said.out)
            if document["differences"] or (said.code and document["verdict"] != "not_compared"):
                problems.append(f"equal copies are said to be {document['verdict']}: {document['differences'][:3]}")
        elif not said.err.strip():
            problems.append(f"ended with {said.code} without a word")
