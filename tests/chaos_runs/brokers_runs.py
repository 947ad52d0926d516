"""Three brokers under faults, with clients of all kinds; then everything heals, and what clients saw is judged."""

from __future__ import annotations

import contextlib
import gzip
import json
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from broker.wire.vocabulary import TopicPartition
from chaos.cluster.checker import Finding, find_violations
from chaos.cluster.history import ClusterHistory, Ending
from chaos.history import Outcome
from tests.chaos_runs.brokers_faults import NODES, Fault, FaultKind, faults_of, faults_that_lose
from tests.chaos_runs.brokers_readers import (
    COMMITTED,
    WHOLE,
    AssignedReader,
    EndAsker,
    Member,
    Reader,
    ends_of,
    read_by,
    read_to_the_ends,
    reading,
    waited,
)
from tests.chaos_runs.brokers_stage import BrokersStage
from tests.chaos_runs.brokers_writers import PARTITIONS, Maker, Names, PlainWriter, TransactionalWriter, Workload
from tests.chaos_runs.hanging import known_hang
from tests.interop.servers import ServerFailed

HEAL_S: Final = 150.0
JOIN_S: Final = 120.0
SHOWN_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Mode:
    """How safe the run's topics and producers are."""

    acks_all: bool = True
    unclean: bool = False
    """min.insync.replicas 1, and unclean leader election on."""

    def topic_configs(self) -> dict[str, str]:
        if self.unclean:
            return {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        return {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


@dataclass
class BrokersResult:
    """What one seed came to; `violations` by kind, and `problems`: what else must not be."""

    seed: int
    records: int = 0
    acknowledged: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    seen: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    """Clients that hang by a known fault of their library: what they sent is judged like all else."""
    healed_s: float = 0.0
    """From the last fault until all replicas were in sync."""
    settled_s: float = 0.0
    """From the last record until all was read to the end."""
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.violations and not self.problems

    def line(self) -> str:
        text = f"{'ok  ' if self.is_good else 'FAIL'} seed {self.seed}: {self._figures()}; {self._times()}"
        return "\n     ".join([text, *self.problems[:SHOWN_MAX]])

    def _times(self) -> str:
        hung = f"; hung: {', '.join(self.hung)}" if self.hung else ""
        return f"healed in {self.healed_s:.1f} s, settled in {self.settled_s:.1f} s, all {self.seconds:.0f} s{hung}"

    def _figures(self) -> str:
        transactions = ", ".join(f"{self.transactions[ending]} {ending}" for ending in Ending)
        records = f"{self.records} records, {self.acknowledged} acknowledged, {self.seen} reads"
        faults, violations = _counted(self.faults), _counted(self.violations)
        return f"{records}, transactions {transactions}; faults: {faults}; violations: {violations}"

    @classmethod
    def total(cls, results: Sequence[BrokersResult]) -> str:
        """Of several seeds, in a line."""
        found = cls(0)
        for result in results:
            found.records += result.records
            found.acknowledged += result.acknowledged
            found.seen += result.seen
            found.transactions += result.transactions
            found.faults += result.faults
            found.violations += result.violations
        failed = sum(not result.is_good for result in results)
        hung = sum(len(result.hung) for result in results)
        return f"{len(results)} seeds, {failed} failed: {found._figures()}; clients that hung: {hung}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()) if count) or "0"


def _hangs(thread: threading.Thread) -> str | None:
    """By which known fault of a client's library. It may be in a group, and keep its partitions from the others."""
    frame = sys._current_frames().get(thread.ident or 0)
    return None if frame is None else known_hang(frame)


class BrokersRun:
    """One seed on a stage whose brokers serve."""

    def __init__(self, seed: int, stage: BrokersStage, folder: Path, length_s: float, mode: Mode) -> None:
        self.stage = stage
        self.folder = folder
        self.mode = mode
        self.length_s = length_s
        kinds = [kind for kind in FaultKind if kind is not FaultKind.DISK_FULL or stage.can_fill_disks]
        self.faults = faults_that_lose(seed, length_s) if mode.unclean else faults_of(seed, length_s, kinds)
        self.result = BrokersResult(seed)
        self._hanging: set[threading.Thread] = set()
        self._lacking: list[str] = []
        """What was still to come when it was looked at last."""
        run = f"s{seed}-{time.time_ns() // 1_000_000 % 10**8:x}"
        self.names = Names(f"plain-{run}", f"mixed-{run}", f"made-{run}")
        self.workload = Workload(stage.bootstrap, self.names, seed, acks_all=mode.acks_all)
        # Patient, unlike the others: a busy machine takes its time to make topics.
        self.admin = AdminClient({"bootstrap.servers": stage.bootstrap, "log_level": 0})
        group = f"readers-{run}"
        self.readers: list[Reader] = [
            AssignedReader(self.workload, "assigned-whole", WHOLE),
            AssignedReader(self.workload, "assigned-committed", COMMITTED),
            *(Member(self.workload, number, group) for number in range(2)),
        ]
        self.asker = EndAsker(self.workload, "asker", WHOLE)
        self.makers = [Maker(self.workload, number) for number in range(2)]
        self.history.groups = {group: {"member-0", "member-1"}, "assigned": {"assigned-committed"}}
        self.history.made_from = set(self.names.partitions(self.names.plain))

    @property
    def history(self) -> ClusterHistory:
        return self.workload.history

    def run(self) -> BrokersResult:
        started_s = time.monotonic()
        findings: list[Finding] = []
        try:
            self._make_topics()
            self._act()
            findings = find_violations(self.history)
        except Exception:  # noqa: BLE001  # one seed's failure is its result, and the next ones still run
            self.result.problems.append(traceback.format_exc())
        self._count(findings)
        self.result.seconds = time.monotonic() - started_s
        if self.result.is_good:
            self.admin.delete_topics([self.names.plain, self.names.mixed, self.names.made])
        else:
            self._keep(findings)
        return self.result

    def _make_topics(self) -> None:
        configs = self.mode.topic_configs()
        topics = [NewTopic(t, PARTITIONS, len(NODES), config=configs) for t in asdict(self.names).values()]
        for made in self.admin.create_topics(topics, request_timeout=HEAL_S).values():
            made.result(HEAL_S)
        assert waited(self._all_in_sync, HEAL_S), "the new topics' replicas are not in sync"

    def _all_in_sync(self) -> bool:
        topics = self.admin.list_topics(timeout=5).topics
        self._lacking = [
            f"{name}-{index}: leader {partition.leader}, in sync {sorted(partition.isrs)}"
            for name in asdict(self.names).values()
            for index, partition in topics[name].partitions.items()
            if len(partition.isrs) < len(NODES) or partition.leader < 0
        ]
        return not self._lacking

    def _act(self) -> None:
        writers: list[PlainWriter | TransactionalWriter] = [
            *(PlainWriter(self.workload, number) for number in range(2)),
            *(TransactionalWriter(self.workload, number) for number in range(2)),
        ]
        with contextlib.ExitStack() as stack:
            stack.callback(self.asker.over.set)
            for reader in self.readers:
                stack.callback(reader.over.set)
            for maker in self.makers:
                stack.callback(maker.until.set)
            stack.callback(self.workload.stop.set)
            writing = [self._begun(writer.name, writer.run) for writer in writers]
            making = [self._begun(maker.name, maker.run) for maker in self.makers]
            reading = [self._begun(reader.name, reader.run) for reader in (*self.readers, self.asker)]
            assert waited(self._flows, HEAL_S), "nothing is written or read"
            try:
                self._inject()
            finally:
                started_s = time.monotonic()
                self._heal()
                self.result.healed_s = time.monotonic() - started_s
            time.sleep(1.0)  # a little of it without faults
            self.workload.stop.set()
            started_s = time.monotonic()
            self._join(writing)
            self._settle(making)
        self._join([*making, *reading])
        self.result.settled_s = time.monotonic() - started_s

    def _flows(self) -> bool:
        """Whether everything has begun."""
        history = self.history
        return bool(history.ends and history.seen) and Ending.COMMITTED in list(history.transactions.values())

    def _begun(self, name: str, run: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                run()
            except Exception:  # noqa: BLE001  # a thread's failure is the run's
                self.workload.problems.append(traceback.format_exc())

        thread = threading.Thread(target=guarded, name=f"{name} of seed {self.result.seed}", daemon=True)
        thread.start()
        return thread

    def _inject(self) -> None:
        """Every fault at its time, and its end at its own."""
        moments: list[tuple[float, bool, Fault]] = []
        for fault in self.faults:
            moments += [(fault.start_s, True, fault), (fault.start_s + fault.length_s, False, fault)]
        started_s = time.monotonic()
        with self._all_ended() as active:
            for at_s, begins, fault in sorted(moments, key=lambda moment: moment[0]):
                time.sleep(max(started_s + min(at_s, self.length_s) - time.monotonic(), 0))
                self.stage.revive()
                if begins:
                    active.append(fault)
                    self.stage.begin(fault)
                    self.result.faults[fault.kind] += 1
                else:
                    active.remove(fault)
                    self.stage.end(fault)

    @contextlib.contextmanager
    def _all_ended(self) -> Iterator[list[Fault]]:
        active: list[Fault] = []
        try:
            yield active
        finally:
            for fault in active:
                self.stage.end(fault)

    def _heal(self) -> None:
        def healed() -> bool:
            # One that came back without ZooKeeper ends when its time is over; until then others may not miss it.
            self.stage.revive()
            return self.stage.all_serve() and self._all_in_sync()

        if not waited(healed, HEAL_S):
            lacking = "; ".join(self._lacking)
            self.result.problems.append(f"not in sync {HEAL_S:.0f} s after the last fault: {lacking}")
        try:
            self.stage.wait_ready()
        except ServerFailed as failed:
            self.result.problems.append(str(failed))

    def _settle(self, making: Sequence[threading.Thread]) -> None:
        """The end state: nothing is open, and everybody has read to the end."""
        with contextlib.ExitStack() as stack:
            committed, whole, makers = (
                stack.enter_context(contextlib.closing(Consumer(reading(self.workload, isolation, **more))))
                for isolation, more in ((COMMITTED, {}), (WHOLE, {}), (WHOLE, {"group_id": self.makers[0].group}))
            )
            if not waited(lambda: self._all_made(committed, makers), HEAL_S) and not any(map(_hangs, making)):
                self.result.problems.append(f"the makers did not come to the end: {'; '.join(self._lacking)}")
            self._end_makers(making)
            if not waited(lambda: ends_of(committed, self.names) == ends_of(whole, self.names), HEAL_S):
                self.result.problems.append("a transaction is still open")
        self.history.whole = read_to_the_ends(self.workload, WHOLE)
        self.history.committed = read_to_the_ends(self.workload, COMMITTED)
        wanted = {(where, offset) for where, log in self.history.committed.items() for offset in log}
        for name, members in self.history.groups.items():
            if not waited(lambda members=members: wanted <= read_by(self.history, members), HEAL_S):  # type: ignore[misc]
                self.result.problems.append(f"the readers of {name} did not come to the end")

    def _end_makers(self, making: Sequence[threading.Thread]) -> None:
        for maker in self.makers:
            maker.until.set()
        self._join(making)

    def _all_made(self, asker: Consumer, makers: Consumer) -> bool:
        """What the makers' group committed is all that is there. Raises KafkaException."""
        ends = ends_of(asker, self.names)
        committed = makers.committed([Place(*where) for where in self.history.made_from], timeout=5.0)
        found = {TopicPartition(at.topic, at.partition): at for at in committed}
        self._lacking = [
            f"{where}: {at.error or at.offset} of {ends[where]}"
            for where, at in found.items()
            if at.error is not None or max(at.offset, 0) < ends[where]
        ]
        return not self._lacking

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        give_up_s = time.monotonic() + JOIN_S
        threads = [thread for thread in threads if thread not in self._hanging]
        for thread in threads:
            thread.join(max(give_up_s - time.monotonic(), 0))
        for thread in threads:
            if not thread.is_alive():
                continue
            self._hanging.add(thread)
            if fault := _hangs(thread):
                self.workload.hung.append(f"{thread.name} {fault}")
            else:
                stack = "".join(traceback.format_stack(sys._current_frames().get(thread.ident or 0)))
                self.result.problems.append(f"did not end within {JOIN_S:.0f} s: {thread.name}\n{stack}")

    def _count(self, findings: Sequence[Finding]) -> None:
        result, history = self.result, self.history
        result.records = len(history.sends)
        result.acknowledged = sum(send.outcome is Outcome.ACKNOWLEDGED for send in history.sends)
        result.transactions = Counter(history.transactions.values())
        result.seen = len(history.seen)
        result.hung = self.workload.hung
        result.violations = Counter(finding.violation for finding in findings)
        result.problems += [str(finding) for finding in findings] + self.workload.problems + self.stage.ended_alone
        if not result.acknowledged or not result.transactions[Ending.COMMITTED]:
            result.problems.append("nothing was written: this run proves nothing")

    def _keep(self, findings: Sequence[Finding]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        history = asdict(self.history)
        for state in ("whole", "committed"):
            history[state] = {str(where): log for where, log in getattr(self.history, state).items()}
        for names in ("made_from", "committed_readers"):
            history[names] = sorted(map(str, history[names]))
        history["groups"] = {name: sorted(members) for name, members in self.history.groups.items()}
        self.stage.copy_partitions(asdict(self.names).values(), self.folder)
        with gzip.open(self.folder / "history.json.gz", "wt") as kept:
            json.dump(history, kept)
        text = [*map(str, self.faults), "", *self.result.problems, "", *map(str, findings)]
        (self.folder / "result.txt").write_text("\n".join([self.result.line(), "", *text]) + "\n")
