"""Which ACLs of a site a freeze made, so that they alone are taken back. Pure.

An ACL has no room for who made it. So beside each denial stands a second one as its mark, of a principal that nobody
is and that names the operation: whoever reaches the site knows what is ours, also when the other site is gone. It is
there before the denial is made, and until that is gone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.client.acls import WriteDenial

MARK: Final = "User:farshore-freeze/"
EVERYBODY: Final = "User:*"


@dataclass(frozen=True, slots=True)
class SiteDenials:
    """Of a site that is frozen by ACLs: whom a freeze denies to write (`principals`), the topics to which that is
    denied by a freeze (`marked`), and whether farshore's own principal could write (`is_writable`) to those of the move
    before it began.
    """

    principals: tuple[str, ...]
    marked: tuple[str, ...] = ()
    is_writable: bool = False

    def marks(self, topics: Sequence[str]) -> bool:
        """Whether one of these topics (regular expressions; none: every one) was closed by a freeze."""
        return any(is_named(topic, topics) for topic in self.marked)


@dataclass(frozen=True, slots=True)
class Denials:
    """All that a site denies to write, and of which operations that is: none of those that somebody else made."""

    there: frozenset[WriteDenial]
    marks: Mapping[WriteDenial, frozenset[str]]

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that a freeze closed."""
        return tuple(sorted({denial.topic for denial in self.marks}))

    def of(self, operation_id: str) -> frozenset[WriteDenial]:
        return frozenset(denial for denial, operations in self.marks.items() if operation_id in operations)

    def operations(self) -> tuple[str, ...]:
        return tuple(sorted(frozenset[str]().union(*self.marks.values())))

    def missing(self, topics: Iterable[str], principals: Sequence[str]) -> frozenset[WriteDenial]:
        """What is to be made, so that these principals are denied."""
        return denials_of(topics, principals) - self.there

    def made(self, topics: Iterable[str], principals: Sequence[str]) -> frozenset[WriteDenial]:
        """Those of these that a freeze has made, or is about to."""
        return denials_of(topics, principals) & self.marks.keys()


def denials_of(topics: Iterable[str], principals: Sequence[str]) -> frozenset[WriteDenial]:
    """Of each of these topics to each of these principals."""
    return frozenset(WriteDenial(topic, one) for topic in topics for one in principals)


def read_denials(found: Collection[WriteDenial]) -> Denials:
    marks: dict[WriteDenial, frozenset[str]] = {}
    for denial in found:
        if (of := _marked_by(denial)) is not None:
            marked, operation_id = of
            marks[marked] = marks.get(marked, frozenset()) | {operation_id}
    return Denials(frozenset(denial for denial in found if not denial.principal.startswith(MARK)), marks)


def mark_of(denial: WriteDenial, operation_id: str) -> WriteDenial:
    return WriteDenial(denial.topic, f"{MARK}{operation_id}/{denial.principal}")


def _marked_by(mark: WriteDenial) -> tuple[WriteDenial, str] | None:
    if not mark.principal.startswith(MARK):
        return None
    operation_id, _, principal = mark.principal.removeprefix(MARK).partition("/")
    return (WriteDenial(mark.topic, principal), operation_id) if principal else None


def is_named(topic: str, topics: Sequence[str]) -> bool:
    """By regular expressions, in full; none is all topics. A cluster's own are nobody's to close."""
    return not topic.startswith("__") and (not topics or any(re.fullmatch(one, topic) for one in topics))
