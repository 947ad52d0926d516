"""What is kept of a source's ends is true at the time that it names, whoever wrote it, whenever it arrived."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.ends_entries import SHARES, share_of
from mirror.offsets.source_ends import (
    Ceased,
    EndsSeen,
    Growth,
    LastLook,
    Observation,
    SeenEnd,
    SourceBrokers,
    TopicShape,
    read_observation,
)

NOW_MS = 1_700_000_000_000
Entries = list[tuple[bytes, bytes]]


@dataclass
class Truth:
    """A source with topics that come, grow, go and come again, and what it was at every moment that was looked at."""

    rng: random.Random
    topics: dict[str, TopicShape] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    then: dict[int, dict[TopicPartition, SeenEnd]] = field(default_factory=dict)
    ids: int = 0

    def go_on(self) -> None:
        name = f"topic-{self.rng.randrange(2 * SHARES)}"
        chance, there = self.rng.random(), self.topics.get(name)
        if there is not None and chance < 0.1:
            del self.topics[name]
            self.ends = {where: end for where, end in self.ends.items() if where.topic != name}
        elif there is None or chance < 0.2:
            self.ids += there is None
            made = TopicShape(there.topic_id if there else f"id-{self.ids}", 1 + (there.partitions if there else 0))
            self.topics[name] = made
            self.ends[TopicPartition(name, made.partitions - 1)] = 0
        for where in self.rng.sample(sorted(self.ends), min(3, len(self.ends))):
            self.ends[where] += self.rng.randrange(5)

    def look(self, seen: EndsSeen, at_ms: int) -> set[TopicPartition]:
        """-> who told."""
        mute = {where for where in self.ends if self.rng.random() < 0.1}
        told = {where: end for where, end in self.ends.items() if where not in mute}
        self.then[at_ms] = {w: SeenEnd(0, end, at_ms, self.topics[w.topic].topic_id) for w, end in told.items()}
        seen.take(at_ms, float(at_ms), self.topics, told, {})
        return set(told)


def test_where_the_brokers_were_is_kept_and_written_again_where_it_changed() -> None:
    seen, topic = EndsSeen(), dict[bytes, bytes]()
    here, there = SourceBrokers("c", ("k1:9092", "k2:9092")), SourceBrokers("c", ("k3:9092",))
    for at, brokers in enumerate((here, here, there)):
        seen.take_brokers(brokers)
        seen.take(NOW_MS + at, float(at), {}, {}, {})
        entries = seen.entries()
        assert [b"brokers" in key for key, _ in entries].count(True) == (at != 1)
        topic.update(entries)
        assert read_observation(topic.items()).brokers == brokers
    for value in b'{"v":1,"cluster_id":"c","addresses":["nonsense"]}', b'{"v":1,"cluster_id":7,"addresses":[1]}':
        assert read_observation([(b'["brokers"]', value)]).brokers == SourceBrokers()


@pytest.mark.parametrize("seed", range(20))
def test_each_end_was_so_when_it_is_said_to_have_been_seen_and_none_is_missing(seed: int) -> None:
    rng = random.Random(seed)
    truth = Truth(rng)
    topic: dict[bytes, bytes] = {}
    workers = [EndsSeen(), EndsSeen()]
    hung: list[Entries] = []
    alone = [True, True]
    complete = 0
    for step in range(100):
        at_ms = NOW_MS + 250 * step
        truth.go_on()
        number = int(rng.random() < 0.05)  # the second one hangs mostly, and does not know that it was succeeded
        worker = workers[number]
        told = truth.look(worker, at_ms)
        if rng.random() < 0.2:
            worker.write_all()
            alone[number] = True
        entries = worker.entries()
        if rng.random() < 0.1:
            hung.append(entries)
            worker.write_all()
            continue
        topic |= entries  # as compaction leaves it
        alone[1 - number] = False
        observation = read_observation(topic.items())
        assert observation.last is not None
        assert observation.last.at_ms == at_ms
        newest = {where: end for where, end in observation.ends.items() if end.at_ms == at_ms}
        assert newest.items() <= truth.then[at_ms].items()
        if alone[number]:
            assert newest.keys() == told, "until another one has written, and again when all was written since"
            complete += 1
        if hung and rng.random() < 0.5:
            topic |= hung.pop(rng.randrange(len(hung)))
            alone = [False, False]
            observation = read_observation(topic.items())
        for where, end in observation.ends.items():
            assert truth.then[end.at_ms][where] == end._replace(ceased=None)
            if end.ceased is not None:
                assert (end.ceased.unanswered_at_ms or 0) > end.at_ms
    assert complete > 3


def seen_at_pace(per_s: int, seconds: int) -> EndsSeen:
    """Four looks a second at one partition to which so much is written."""
    seen = EndsSeen()
    for look in range(4 * seconds + 1):
        end = per_s * look // 4
        seen.take(NOW_MS + 250 * look, 250.0 * look, {"a": TopicShape("", 1)}, {TopicPartition("a", 0): end}, {})
    return seen


@pytest.mark.parametrize("seconds", [1, 7, 60, 200])
def test_the_pace_is_that_of_the_last_minute(seconds: int) -> None:
    last = read_observation(seen_at_pace(400, seconds).entries()).last
    assert last is not None
    assert last.fastest_per_s == 400
    assert last.grown[-1] == Growth(1000 * min(60, seconds), 400 * min(60, seconds))
    assert last.seconds_of(0) == 0
    for offsets in (1, 200, 400, 400 * min(60, seconds)):
        assert last.seconds_of(offsets) == pytest.approx(offsets / 400, abs=0.01)
    assert last.seconds_of(400 * min(60, seconds) + 1) is None


def test_a_burst_is_the_fastest_second_for_a_minute() -> None:
    seen, where = EndsSeen(), TopicPartition("a", 0)
    for look in range(400):
        end = 1_000 if look >= 100 else 0
        seen.take(NOW_MS + 250 * look, 250.0 * look, {"a": TopicShape("", 1)}, {where: end}, {})
        last = read_observation(seen.entries()).last
        assert last is not None
        assert (last.fastest_per_s > 0) == (100 <= look <= 339), look


def test_what_was_there_before_the_first_look_was_not_written_now_and_what_was_born_since_was() -> None:
    seen, a, b = EndsSeen(), TopicPartition("a", 0), TopicPartition("b", 0)
    shape = TopicShape("", 1)
    seen.take(NOW_MS, 0.0, {"a": shape}, {a: 5_000}, {})
    seen.take(NOW_MS + 2_000, 2_000.0, {"a": shape, "b": shape}, {a: 5_000, b: 70}, {})
    last = read_observation(seen.entries()).last
    assert last is not None
    assert last.grown == (Growth(2_000, 70),)


def test_a_source_that_ceased_to_answer_is_said_to_once_and_its_starts_are_kept() -> None:
    seen, where = EndsSeen(), TopicPartition("a", 0)
    seen.miss(NOW_MS - 1)
    assert seen.entries() == [], "it never answered: there is nothing to say"
    seen.take(NOW_MS, 0.0, {"a": TopicShape("id", 1)}, {where: 90}, {where: 40})
    topic = seen.entries()
    for later in (250, 1_250, 2_250):
        seen.miss(NOW_MS + later)
        topic += seen.entries()
    assert len(topic) == 3, "it is not said again and again"
    silent = read_observation(topic)
    assert silent == Observation(LastLook(NOW_MS, NOW_MS + 250), {where: SeenEnd(40, 90, NOW_MS, "id")})
    seen.take(NOW_MS + 9_000, 9_000.0, {"a": TopicShape("id", 1)}, {where: 90}, {})
    back = read_observation([*topic, *seen.entries()])
    assert back.last is not None
    assert (back.last.unanswered_at_ms, back.ends[where]) == (None, SeenEnd(40, 90, NOW_MS + 9_000, "id"))


def test_a_log_that_ceases_to_answer_alone_is_told_with_its_own_pace_until_it_is_back() -> None:
    """Another one grew a hundred times as fast, and went on; the dead broker's was said to have gone on as that."""
    seen, topic = EndsSeen(), dict[bytes, bytes]()
    still, busy, late = (TopicPartition("a", number) for number in range(3))
    for look in range(400):
        at_ms, ends = 250 * look, {busy: 100 * look, late: 0}
        ends |= {still: look} if look <= 40 else {}
        seen.take(NOW_MS + at_ms, float(at_ms), {"a": TopicShape("id", 3)}, ends, {})
        topic |= dict(seen.entries())
    found = read_observation(topic.items())
    assert found.last is not None
    assert found.last.fastest_per_s == 400
    assert found.ends[still] == SeenEnd(0, 40, NOW_MS + 10_000, "id", Ceased(NOW_MS + 10_250, 4.0))
    assert found.ends[busy].ceased is None
    seen.take(NOW_MS + 100_000, 100_000.0, {"a": TopicShape("id", 3)}, {still: 41, busy: 39_900}, {})
    topic |= dict(seen.entries())
    found = read_observation(topic.items())
    assert found.ends[still].ceased is None
    assert found.ends[late].ceased == Ceased(NOW_MS + 100_000, 0.0)
    seen.miss(NOW_MS + 100_250)
    seen.take(NOW_MS + 102_000, 102_000.0, {"a": TopicShape("id", 3)}, {busy: 39_900}, {})
    topic |= dict(seen.entries())
    ceased = read_observation(topic.items()).ends[still].ceased
    assert ceased is not None
    assert ceased.unanswered_at_ms == NOW_MS + 100_250, "a look at which nobody answered was in vain here, too"


def test_an_older_version_did_not_say_when_a_log_ceased_to_answer_nor_its_pace() -> None:
    last = b'{"v":1,"at_ms":9000,"unanswered_at_ms":null,"shares":{"%d":9000},"grown":[],"fastest_per_s":3.0}'
    share = share_of("a")
    value = b'{"v":1,"at_ms":9000,"topics":{"a":{"id":"","ends":[7,8],"late":{"1":5000}}}}'
    found = read_observation([(b'["ends",%d]' % share, value), (b'["seen"]', last % share)]).ends
    assert found[TopicPartition("a", 0)].ceased is None
    assert found[TopicPartition("a", 1)] == SeenEnd(0, 8, 5_000, "", Ceased(None, None))


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"v":2}', b'{"v":1}', b'{"v":1,"at_ms":"x","topics":{"a":1}}'])
def test_what_cannot_be_understood_says_nothing_and_hides_nothing_else(value: bytes) -> None:
    seen, where = EndsSeen(), TopicPartition("a", 0)
    other = next(name for name in map(str, range(99)) if share_of(name) != share_of("a"))
    shapes = {"a": TopicShape("", 1), other: TopicShape("", 1)}
    seen.take(NOW_MS, 0.0, shapes, {where: 9, TopicPartition(other, 0): 8}, {})
    topic = seen.entries()
    (share,) = [key for key, kept in topic if b'"a"' in kept]
    assert read_observation([*topic, (share, value)]).ends == {TopicPartition(other, 0): SeenEnd(0, 8, NOW_MS)}
    blind = read_observation([*topic, (topic[-1][0], value)])
    assert (blind.last, blind.ends[where]) == (None, SeenEnd(0, 9, NOW_MS))


def test_only_what_changed_is_written_and_all_of_it_when_nothing_is_known_of_what_was() -> None:
    seen = EndsSeen()
    wheres = [TopicPartition(f"topic-{number}", 0) for number in range(1_000)]
    topics, ends = {where.topic: TopicShape("", 1) for where in wheres}, dict.fromkeys(wheres, 7)
    seen.take(NOW_MS, 0.0, topics, ends, {})
    assert len(seen.entries()) == SHARES + 1
    seen.take(NOW_MS + 250, 250.0, topics, ends, {})
    assert len(seen.entries()) == 1
    seen.take(NOW_MS + 500, 500.0, topics, ends | {wheres[0]: 8}, {})
    assert len(seen.entries()) == 2
    seen.write_all()
    assert len(seen.entries()) == SHARES + 1
