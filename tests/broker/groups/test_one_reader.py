"""Whatever consumers do and suffer, of either protocol and while they go over: no partition is ever read by two."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.groups.consumer.records import GroupReader
from broker.log.disk import OsDisk
from broker.wire.vocabulary import GroupState
from tests.broker.clock import ManualClock
from tests.broker.coordinator_host import Host, start
from tests.broker.groups.readers import GROUP, ClassicReader, ConsumerReader, Reader, slots_of_topics
from tests.worlds import first_worlds

TOPICS = ("flights", "weather")
SUBSCRIPTIONS = st.sampled_from([TOPICS[:1], TOPICS[1:], TOPICS, TOPICS])
NAMES = st.sampled_from("abcd")


class HastyDisk(OsDisk):
    """It survives a kill, but no power cut: thousands of starts would wait for the real one."""

    def fsync(self, fd: int) -> None: ...
    def fsync_directory(self, directory: Path) -> None: ...
    def sync_all(self) -> None: ...

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        super().write_file(path, data, durable=False)


class OneReader(RuleBasedStateMachine):
    """Consumers that come, live, let go late, lose answers, go over to the other protocol, leave, die, fall silent."""

    eager = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="one-reader-"))
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.kills = 0
        self.host: Host = start(self.folder, self.clock, HastyDisk())
        for name, partitions in zip(TOPICS, (5, 3), strict=True):
            self.host.create_topic(name, partitions)
        self.readers: dict[str, Reader] = {}
        self.epoch = 0

    # -- what happens ------------------------------------------------------------------------------------------

    @rule(name=NAMES, topics=SUBSCRIPTIONS, by_regex=st.booleans(), is_static=st.booleans())
    def comes(self, name: str, topics: tuple[str, ...], by_regex: bool, is_static: bool) -> None:
        if name not in self.readers:
            instance = f"instance-{name}" if is_static else None
            self.readers[name] = ConsumerReader(name, () if by_regex else topics, instance)
            self.readers[name].step(self.host)

    @rule(name=NAMES, topics=SUBSCRIPTIONS, is_static=st.booleans())
    def comes_the_old_way(self, name: str, topics: tuple[str, ...], is_static: bool) -> None:
        if name not in self.readers:
            self._add_classic(name, topics, f"instance-{name}" if is_static else None)

    def _add_classic(self, name: str, topics: tuple[str, ...], instance: str | None) -> None:
        self.readers[name] = ClassicReader(name, topics, instance, eager=self.eager, loop=self.loop)
        self.readers[name].step(self.host)

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), lost=st.booleans())
    def lives(self, data: st.DataObject, lost: bool) -> None:
        self._some(data).step(self.host, lost=lost)

    @precondition(lambda self: self.readers)
    @rule(times=st.integers(1, 3))
    def all_live(self, times: int) -> None:
        for _ in range(times):
            for reader in self.readers.values():
                reader.step(self.host)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        reader = self._some(data)
        reader.leave(self.host)
        del self.readers[reader.name]

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        """It reads no more, and the broker does not know."""
        reader = self._some(data)
        if isinstance(reader, ClassicReader):
            reader.hang_up()
        del self.readers[reader.name]

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), topics=SUBSCRIPTIONS)
    def goes_over(self, data: st.DataObject, topics: tuple[str, ...]) -> None:
        """A rolling upgrade, or back."""
        reader = self._some(data)
        reader.leave(self.host)
        # An empty group of the other kind is forgotten, with its epoch.
        self.epochs_never_go_down()
        if isinstance(reader, ClassicReader):
            self.readers[reader.name] = ConsumerReader(reader.name, topics, reader.instance)
        else:
            self._add_classic(reader.name, topics, reader.instance)
        self.readers[reader.name].step(self.host)

    @rule(ms=st.integers(1, 20_000))
    def time_passes(self, ms: int) -> None:
        """Nobody is heard meanwhile; each client knows by its own clock when its session is over."""
        self.clock.advance(ms)
        now_ms = self.host.groups.now_ms()
        for reader in self.readers.values():
            if reader.heard_ms + reader.session_ms <= now_ms and not (
                isinstance(reader, ClassicReader) and reader.waits
            ):
                reader.let_go()
        self.host.groups.tick()
        for reader in self.readers.values():
            # Dropped because it did not let go in time, which its client knows too (max.poll.interval.ms).
            if reader.reads and not self._is_member(reader):
                reader.let_go()

    @rule(topic=st.sampled_from(TOPICS))
    def a_topic_grows(self, topic: str) -> None:
        shape = self.host.topic_shape(topic)
        assert shape is not None
        if shape.partitions < 8:
            self.host.add_partition(topic, shape.partitions)

    @rule(clean=st.booleans())
    def the_broker_starts_again(self, clean: bool) -> None:
        for reader in self.readers.values():
            if isinstance(reader, ClassicReader):
                reader.hang_up()
        self.loop.run_until_complete(asyncio.sleep(0))
        was_consumer = GROUP in self.host.groups.consumer.groups
        if clean:
            self.host = self.host.restart()
        else:
            self._kill()
        for reader in self.readers.values():
            reader.heard_ms = self.host.groups.now_ms()
        if not was_consumer:
            # A classic group's generation is written when its leader has assigned.
            self.epoch = 0

    def _kill(self) -> None:
        """What the next one finds is what stood in the files; the old one is closed for its file numbers alone."""
        killed, self.kills = self.host, self.kills + 1
        found = self.folder / f"kill-{self.kills}"
        shutil.copytree(killed.config.data_dir, found / "data")
        killed.close()
        self.host = start(found, self.clock, HastyDisk())

    # -- what holds --------------------------------------------------------------------------------------------

    def _some(self, data: st.DataObject) -> Reader:
        return self.readers[data.draw(st.sampled_from(sorted(self.readers)))]

    def _is_member(self, reader: Reader) -> bool:
        consumer = self.host.groups.consumer.groups.get(GROUP)
        classic = self.host.groups.groups.get(GROUP)
        members = {**(consumer.members if consumer else {}), **(classic.members if classic else {})}
        return reader.member_id in members

    @invariant()
    def one_reader_each(self) -> None:
        reading = [slot for reader in self.readers.values() for slot in reader.reads]
        assert len(reading) == len(set(reading))
        group = self.host.groups.consumer.groups.get(GROUP)
        held = [slot for member in group.members.values() for slot in member.held] if group else []
        assert len(held) == len(set(held))

    @invariant()
    def a_group_is_of_one_kind(self) -> None:
        assert not (GROUP in self.host.groups.groups and GROUP in self.host.groups.consumer.groups)

    @invariant()
    def epochs_never_go_down(self) -> None:
        consumer, classic = self.host.groups.consumer.groups.get(GROUP), self.host.groups.groups.get(GROUP)
        group = consumer or classic
        if group is None or not group.members:
            self.epoch = 0
            return
        epoch = consumer.epoch if consumer else classic.generation_id if classic else 0
        assert epoch >= self.epoch
        self.epoch = epoch
        if consumer:
            assert consumer.target_epoch <= consumer.epoch
            assert all(member.epoch <= consumer.target_epoch for member in consumer.members.values())

    @invariant()
    def the_log_says_the_same(self) -> None:
        reader = GroupReader()
        for batch in self.host.groups.log.replay():
            for record in batch.records:
                reader.take(record.key or b"", record.value)
        read = {g.group_id: (g.epoch, g.target_epoch, g.members, g.target) for g in reader.groups()}
        known = self.host.groups.consumer.groups.values()
        assert read == {g.group_id: (g.epoch, g.target_epoch, g.members, g.target) for g in known}

    def teardown(self) -> None:
        """Left alone, all come to rest, and every partition has its reader."""
        try:
            self._come_to_rest()
        finally:
            for reader in self.readers.values():
                if isinstance(reader, ClassicReader):
                    reader.hang_up()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()
            self.host.close()
            shutil.rmtree(self.folder)

    def _come_to_rest(self) -> None:
        if not self.readers:
            return
        # Long enough for the sessions of all that are gone, and for a rebalance that waits for each of them in turn.
        for _ in range(100):
            self.clock.advance(3_000)
            self.host.groups.tick()
            for _ in range(3):
                for reader in self.readers.values():
                    reader.step(self.host)
            self.one_reader_each()
        consumer, classic = self.host.groups.consumer.groups.get(GROUP), self.host.groups.groups.get(GROUP)
        group = consumer or classic
        assert group is not None
        assert group.state is GroupState.STABLE
        wanted = {slot for r in self.readers.values() for slot in slots_of_topics(self.host, r.topics or TOPICS)}
        assert {slot for reader in self.readers.values() for slot in reader.reads} == wanted
        # Kafka's `bidirectional`: the kind of the group is that of its newest members.
        assert (consumer is not None) == any(isinstance(r, ConsumerReader) for r in self.readers.values())


class OneReaderEager(OneReader):
    """The classic members give everything up before they join."""

    eager = True


for machine in (OneReader, OneReaderEager):
    machine.TestCase.settings = settings(
        max_examples=first_worlds(10, of=30), stateful_step_count=30, suppress_health_check=list(HealthCheck)
    )
TestOneReader = OneReader.TestCase
TestOneReaderEager = OneReaderEager.TestCase
