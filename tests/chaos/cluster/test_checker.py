"""A history of a correct log is never accused, whatever was left unknown; each kind of violation is found in one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.vocabulary import TopicPartition
from chaos.cluster.checker import Violation, find_violations
from chaos.cluster.history import ClusterHistory, Ending, EndTold, Seen, Send
from chaos.history import Outcome

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
A, B = PARTITIONS
WRITERS = ("one", "two")


class Model:
    """Logs that do all right, and clients that do not always hear of it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.history = ClusterHistory(
            whole={where: {} for where in PARTITIONS},
            committed={where: {} for where in PARTITIONS},
            committed_readers={"assigned-committed", "member-0", "member-1"},
            groups={"group": {"member-0", "member-1"}},
        )
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.now_s = 0.0
        self.committed_position = dict.fromkeys(PARTITIONS, 0)

    def step(self) -> None:
        self.now_s += 1
        self.chance.choice([self.send, self.send, self.transaction, self.ask_end])()

    def send(self) -> None:
        where, writer = self.chance.choice(PARTITIONS), self.chance.choice(WRITERS)
        send = self._sent(where, writer)
        if self._arrives(send):
            self.history.committed[where][self.ends[where] - 1] = send.value

    def transaction(self) -> None:
        number = len(self.history.transactions)
        ending = self.chance.choice(list(Ending))
        takes_effect = ending is Ending.COMMITTED or (ending is Ending.UNKNOWN and self.chance.random() < 0.5)
        for _ in range(self.chance.randint(1, 4)):
            send = self._sent(self.chance.choice(PARTITIONS), "transactional", number)
            send.origin = 10_000 + send.value
            if takes_effect or self.chance.random() < 0.8:
                self._arrives(send, acknowledged=takes_effect)
                if takes_effect:
                    self.history.committed[send.where][self.ends[send.where] - 1] = send.value
        for where in PARTITIONS:
            self.ends[where] += 1  # the marker
        self.history.transactions[number] = ending

    def ask_end(self) -> None:
        where = self.chance.choice(PARTITIONS)
        self.history.ends.append(EndTold(where, self.now_s, self.ends[where]))

    def read(self) -> None:
        """All readers, from the start; the group's members hand partitions over, and read again what was not
        committed.
        """
        for where in PARTITIONS:
            self.history.seen += [Seen("assigned", 0, where, *item) for item in self.history.whole[where].items()]
            committed = list(self.history.committed[where].items())
            self.history.seen += [Seen("assigned-committed", 0, where, *item) for item in committed]
            position, run = 0, 0
            while position < len(committed):
                count = self.chance.randint(1, 10)
                reader = f"member-{run % 2}"
                self.history.seen += [
                    Seen(reader, run, where, *item) for item in committed[position : position + count]
                ]
                position, run = position + self.chance.randint(0, count), run + 1

    def _sent(self, where: TopicPartition, writer: str, transaction: int | None = None) -> Send:
        send = Send(len(self.history.sends), where, writer, transaction)
        self.history.sends.append(send)
        return send

    def _arrives(self, send: Send, acknowledged: bool = False) -> bool:
        """Whether it is in the log; of one that is, the writer may not hear."""
        fate = self.chance.random()
        if not acknowledged and fate < 0.15:
            return False
        offset = self.ends[send.where]
        self.history.whole[send.where][offset] = send.value
        self.ends[send.where] += 1
        if acknowledged or fate < 0.8:
            send.outcome, send.offset, send.done_s = Outcome.ACKNOWLEDGED, offset, self.now_s
        return True


def history_of(chance: random.Random, steps: int) -> ClusterHistory:
    model = Model(chance)
    for _ in range(steps):
        model.step()
    model.read()
    return model.history


@given(st.integers(0, 2**32), st.integers(0, 60))
def test_a_correct_history_is_never_accused(seed: int, steps: int) -> None:
    assert find_violations(history_of(random.Random(seed), steps)) == []


def acknowledged(history: ClusterHistory) -> Send:
    """Not of a transaction, and amid others of its partition."""
    committed = history.committed[A]
    middle = sorted(committed)[1:-1]
    return next(s for s in history.sends if s.offset in middle and s.where == A and s.transaction is None)


def ended(history: ClusterHistory, ending: Ending) -> list[Send]:
    """The records of the first transaction that ended so, and has some in the log."""
    there = {value for log in history.whole.values() for value in log.values()}
    for number, found in history.transactions.items():
        sends = [send for send in history.sends if send.transaction == number]
        if found is ending and len(sends) > 1 and all(send.value in there for send in sends):
            return sends
    raise AssertionError(f"no transaction was {ending}")


def remove(history: ClusterHistory, send: Send) -> None:
    """As if it had never been there; nobody has seen it."""
    for logs in (history.whole, history.committed):
        logs[send.where] = {offset: value for offset, value in logs[send.where].items() if value != send.value}
    history.seen = [seen for seen in history.seen if seen.value != send.value]


def lose(history: ClusterHistory) -> None:
    remove(history, acknowledged(history))


def lose_what_was_read(history: ClusterHistory) -> None:
    send = acknowledged(history)
    send.outcome, send.offset, send.done_s = Outcome.UNKNOWN, None, None
    for logs in (history.whole, history.committed):
        logs[A] = {offset: value for offset, value in logs[A].items() if value != send.value}


def lose_of_a_transaction(history: ClusterHistory) -> None:
    for send in ended(history, Ending.COMMITTED):
        remove(history, send)


def hide_from_committed_readers(history: ClusterHistory) -> None:
    send = acknowledged(history)
    history.committed[A] = {offset: value for offset, value in history.committed[A].items() if value != send.value}
    history.seen = [s for s in history.seen if s.value != send.value or s.reader not in history.committed_readers]


def write_twice(history: ClusterHistory) -> None:
    send, end = acknowledged(history), max(history.whole[A]) + 100
    history.whole[A][end] = history.committed[A][end] = send.value
    history.seen.append(Seen("member-0", 99, A, end, send.value))


def make_twice(history: ClusterHistory) -> None:
    one, other = ended(history, Ending.COMMITTED)[:2]
    other.origin = one.origin


def leave_unmade(history: ClusterHistory) -> None:
    """Of the records in A another one was made each, but of one."""
    for other, value in enumerate(history.committed[A].values()):
        made = Send(100_000 + other, B, "maker", origin=value)
        history.sends.append(made)
        if other != 1:
            history.committed[B][100_000 + other] = history.whole[B][100_000 + other] = made.value
    history.made_from = {A}
    del history.groups["group"]


def swap(history: ClusterHistory) -> None:
    """Two records of one writer."""
    mine = [send for send in history.sends if (send.writer, send.where) == ("one", A) and send.offset is not None]
    first, second = (history.sends.index(send) for send in mine[:2])
    history.sends[first], history.sends[second] = mine[1], mine[0]


def tell_an_old_end(history: ClusterHistory) -> None:
    send = acknowledged(history)
    assert send.offset is not None
    assert send.done_s is not None
    history.ends.append(EndTold(A, send.done_s + 0.5, send.offset))


def show_an_aborted(history: ClusterHistory) -> None:
    send = ended(history, Ending.ABORTED)[0]
    offset = next(offset for offset, value in history.whole[send.where].items() if value == send.value)
    history.committed[send.where][offset] = send.value
    members = history.groups.pop("group")
    history.seen = [seen for seen in history.seen if seen.reader not in members]
    mine = [s for s in history.seen if (s.reader, s.where) == ("assigned-committed", send.where)]
    later = [seen for seen in mine if seen.offset > offset]
    place = history.seen.index(later[0]) if later else len(history.seen)
    history.seen.insert(place, Seen("assigned-committed", 0, send.where, offset, send.value))


def lead_back(history: ClusterHistory) -> None:
    seen = [seen for seen in history.seen if (seen.reader, seen.where) == ("assigned", A)]
    history.seen.insert(history.seen.index(seen[-1]) + 1, seen[0])


def lead_past(history: ClusterHistory) -> None:
    value = acknowledged(history).value
    history.seen = [seen for seen in history.seen if (seen.reader, seen.value) != ("assigned", value)]


def leave_out_for_the_group(history: ClusterHistory) -> None:
    """Where one member's run ends, and the next one begins behind it."""
    offset = sorted(history.committed[A])[-2]
    members = history.groups["group"]
    later = [s for s in history.seen if s.reader in members and s.where == A and s.offset > offset]
    history.seen = [s for s in history.seen if s.reader not in members or s.where != A or s.offset < offset]
    history.seen.append(replace(later[0], run=99))


def invent(history: ClusterHistory) -> None:
    end = max(history.whole[A]) + 100
    history.whole[A][end] = 999_999


def commit_a_part(history: ClusterHistory) -> None:
    for send in ended(history, Ending.COMMITTED)[:1]:
        assert send.transaction is not None
        history.transactions[send.transaction] = Ending.UNKNOWN
        committed = history.committed[send.where]
        history.committed[send.where] = {o: value for o, value in committed.items() if value != send.value}
        history.seen = [s for s in history.seen if s.value != send.value or s.reader not in history.committed_readers]


def change(history: ClusterHistory) -> None:
    """One reader saw what an unclean leader had there, and another one what was there in the end."""
    ours, theirs = acknowledged(history), Send(555, A, "two")
    history.sends.append(theirs)
    at = next(i for i, s in enumerate(history.seen) if (s.reader, s.value) == ("assigned", ours.value))
    history.seen[at] = replace(history.seen[at], value=theirs.value)


def move_an_acknowledgement(history: ClusterHistory) -> None:
    send = acknowledged(history)
    assert send.offset is not None
    send.offset = min(offset for offset in history.whole[A] if offset != send.offset)
    send.done_s = None


PLANTED: list[tuple[Callable[[ClusterHistory], None], set[Violation]]] = [
    (lose, {Violation.LOST}),
    (lose_what_was_read, {Violation.LOST}),
    (lose_of_a_transaction, {Violation.LOST}),
    (hide_from_committed_readers, {Violation.LOST}),
    (write_twice, {Violation.DUPLICATED}),
    (make_twice, {Violation.DUPLICATED}),
    (leave_unmade, {Violation.SKIPPED}),
    (swap, {Violation.REORDERED}),
    (tell_an_old_end, {Violation.STALE}),
    (show_an_aborted, {Violation.ABORTED}),
    (lead_back, {Violation.NON_MONOTONIC}),
    (lead_past, {Violation.SKIPPED}),
    (leave_out_for_the_group, {Violation.SKIPPED}),
    (invent, {Violation.INVENTED}),
    (commit_a_part, {Violation.PARTIAL}),
    (change, {Violation.DIVERGED}),
    (move_an_acknowledgement, {Violation.DIVERGED}),
]


@pytest.mark.parametrize(("plant", "kinds"), PLANTED)
def test_each_planted_violation_is_found_and_nothing_else(
    plant: Callable[[ClusterHistory], None], kinds: set[Violation]
) -> None:
    for seed in range(5):
        history = history_of(random.Random(seed), 200)
        plant(history)
        assert {finding.violation for finding in find_violations(history)} == kinds, f"seed {seed}"


def test_every_kind_of_violation_is_planted() -> None:
    assert {kind for _, kinds in PLANTED for kind in kinds} == set(Violation)
