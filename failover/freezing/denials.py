"""Which ACLs of a site a freeze made, so that they alone are taken back. Pure.

An ACL has no room for who made it. So beside each denial stands a second one as its mark, of a principal that nobody
is and that names the operation: whoever reaches the site knows what is ours, also when the other site is gone. It is
there before the denial is made, and until that is gone. Who is about to take his own back says so first, by a third:
of several that hold a denial each knows by it whether he is the last.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from broker.client.acls import FREEZE_MARK, THAW_MARK, KnownDenials, WriteDenial
from broker.wire.vocabulary import EVERYBODY

MARK: Final = FREEZE_MARK
LEAVING_MARK: Final = THAW_MARK


@dataclass(frozen=True, slots=True)
class SiteDenials:
    """Of a site that is frozen by ACLs: whom a freeze denies to write (`principals`), the topics of which something of
    a freeze is to be taken back (`marked`), whether farshore's own principal could write (`is_writable`) to those of
    the move before it began, and the topics to which a freeze denies somebody to write now (`closed`). `hidden`: those
    of the move that farshore may not describe; they are closed all the same, by their names. `left_open`: those to
    which it denies nobody to write, as its ACLs would be the first about them, and take them from everybody.
    """

    principals: tuple[str, ...]
    marked: tuple[str, ...] = ()
    is_writable: bool = False
    closed: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()

    def marks(self, topics: Sequence[str]) -> bool:
        """Whether of one of these topics (regular expressions; none: every one) something is to be taken back."""
        return any(is_named(topic, topics) for topic in self.marked)

    def touches(self, topics: Sequence[str]) -> bool:
        """Whether a freeze denies anybody to write to one of them, be it at one broker: what it left may be closed."""
        return any(is_named(topic, topics) for topic in self.closed)


@dataclass(frozen=True, slots=True)
class Denials:
    """All that a broker of a site denies to write, and of which operations that is: none of those that somebody else
    made. `leaving`: those that are about to take theirs back, or died doing so. `everywhere`: what is denied by all
    brokers that say it. `differing`: the brokers that have not said that they deny all that a freeze does.
    """

    there: frozenset[WriteDenial]
    marks: Mapping[WriteDenial, frozenset[str]]
    leaving: Mapping[WriteDenial, frozenset[str]]
    everywhere: frozenset[WriteDenial]
    differing: tuple[int, ...] = ()

    @property
    def closed(self) -> frozenset[WriteDenial]:
        """Those that a freeze made, or holds, and that are there: a mark denies nobody."""
        return self.there & {*self.marks, *self.leaving}

    @property
    def topics(self) -> tuple[str, ...]:
        """Those to which a freeze denies somebody to write, at one broker at least."""
        return tuple(sorted({denial.topic for denial in self.closed}))

    @property
    def marked(self) -> tuple[str, ...]:
        """Topics of which something of a freeze is to be taken back, be it a mark alone."""
        return tuple(sorted({denial.topic for denial in (*self.marks, *self.leaving)}))

    def open_to(self, topic: str, principals: Iterable[str]) -> tuple[str, ...]:
        """Those of these principals who can still write to it at all brokers, super users or not."""
        if WriteDenial(topic, EVERYBODY) in self.there:
            return ()
        return tuple(one for one in principals if WriteDenial(topic, one) not in self.there)

    def in_part(self, principals: Collection[str]) -> dict[str, tuple[str, ...]]:
        """The topics that a freeze closes for some of these principals only: who of them can still write."""
        return {topic: still for topic in self.topics if (still := self.open_to(topic, principals))}

    def open_of(self, names: Iterable[str], principals: Collection[str]) -> tuple[str, ...]:
        """Those of these topics that a freeze does not close to all of these principals, or not by all brokers, as far
        as they have said.
        """
        closed = frozenset[str]() if self.differing else {*self.topics} - self.in_part(principals).keys()
        return tuple(sorted({*names} - closed))

    def closes(self, names: Collection[str], principals: Collection[str]) -> bool | None:
        """Whether a freeze closes these topics; None: some of them, or in part. False, too, where there are none."""
        if not self.open_of(names, principals):
            return bool(names)
        return None if {*names} & {*self.topics} else False

    def takes_writes(self, topics: Set[str], principals: Collection[str]) -> bool | None:
        """Of these principals to one of these topics at least, as far as freezes and all brokers say that say it. One
        that was made since, or that the mirror made, has no mark, and says nothing of the others: None.
        """
        everywhere = replace(self, there=self.everywhere)
        refused = set(everywhere.topics) - everywhere.in_part(principals).keys()
        return False if topics <= refused else None if topics & {*self.topics} else True

    def of(self, operation_id: str) -> frozenset[WriteDenial]:
        """What it has made or holds, or was about to take back."""
        told = (*self.marks.items(), *self.leaving.items())
        return frozenset(denial for denial, operations in told if operation_id in operations)

    def is_held(self, denial: WriteDenial) -> bool:
        """Whether somebody holds it who is not about to take it back."""
        return not self.marks.get(denial, frozenset()) <= self.leaving.get(denial, frozenset())

    def left_by(self, denials: Iterable[WriteDenial]) -> dict[WriteDenial, frozenset[str]]:
        """Those of these of which somebody takes back his own."""
        return {denial: self.leaving[denial] for denial in denials if denial in self.leaving}

    def operations(self, denials: Iterable[WriteDenial]) -> tuple[str, ...]:
        """Whose marks these have."""
        by = [told.get(denial, frozenset()) for denial in denials for told in (self.marks, self.leaving)]
        return tuple(sorted(frozenset[str]().union(*by)))

    def to_hold(self, topics: Iterable[str], principals: Sequence[str]) -> frozenset[WriteDenial]:
        """What is a freeze's own, so that these principals are denied: all but what somebody else has denied them. That
        one broker still does, which may be behind, is not enough.
        """
        wanted = denials_of(topics, principals)
        return (wanted - self.everywhere) | (wanted & self.marks.keys())


def denials_of(topics: Iterable[str], principals: Sequence[str]) -> frozenset[WriteDenial]:
    """Of each of these topics to each of these principals."""
    return frozenset(WriteDenial(topic, one) for topic in topics for one in principals)


def without_marks(denials: Iterable[WriteDenial]) -> frozenset[WriteDenial]:
    return frozenset(denial for denial in denials if not denial.principal.startswith((MARK, LEAVING_MARK)))


def read_denials(known: KnownDenials) -> Denials:
    found = known.by_any
    there, everywhere = without_marks(found), without_marks(known.by_all)
    read = Denials(there, _marked(found, MARK), _marked(found, LEAVING_MARK), everywhere)
    return replace(read, differing=known.without(read.closed)) if read.closed else read


def mark_of(denial: WriteDenial, operation_id: str) -> WriteDenial:
    return WriteDenial(denial.topic, f"{MARK}{operation_id}/{denial.principal}")


def leaving_mark_of(denial: WriteDenial, operation_id: str) -> WriteDenial:
    return WriteDenial(denial.topic, f"{LEAVING_MARK}{operation_id}/{denial.principal}")


def _marked(found: Collection[WriteDenial], kind: str) -> dict[WriteDenial, frozenset[str]]:
    marks: dict[WriteDenial, frozenset[str]] = {}
    for mark in found:
        if mark.principal.startswith(kind):
            operation_id, _, principal = mark.principal.removeprefix(kind).partition("/")
            if principal:
                denial = WriteDenial(mark.topic, principal)
                marks[denial] = marks.get(denial, frozenset()) | {operation_id}
    return marks


def names_of(principals: Iterable[str]) -> str:
    """Of some who can still write, as people are told."""
    return ", ".join("everybody else" if one == EVERYBODY else one for one in principals)


def topic_options(expressions: Iterable[str]) -> str:
    """The options that name these topics."""
    return " ".join(f"--topic {shlex.quote(one)}" for one in expressions)


def is_named(topic: str, topics: Sequence[str]) -> bool:
    """By regular expressions, in full; none is all topics. A cluster's own are nobody's to close."""
    return not topic.startswith("__") and (not topics or any(re.fullmatch(one, topic) for one in topics))
