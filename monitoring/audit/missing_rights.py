"""Which rights farshore lacks where an audit asks: without a word of it nobody knows why so little was compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final

from broker.client.errors import KafkaError
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import AclOperation, AclResource


def hint_to_give(command: str) -> str:
    return f"give it: `farshore link rights --command '{command}'` prints all that are needed"


HINT_TO_GIVE: Final = hint_to_give("audit run")
NAMED_IN_A_LINE: Final = 5


@dataclass(frozen=True, slots=True)
class MissingRight:
    """An operation, by the word that `kafka-acls` has for it, on a `topic` or a `group` at a site.

    Whose right it is stands nowhere here: who reads a report is not told as whom farshore logs in.
    """

    site: str
    operation: str
    resource: str
    name: str

    def of(self, principal: str) -> str:
        refused = f"{self.resource.upper()}_AUTHORIZATION_FAILED"
        return f"{principal} at {self.site} lacks {self.operation} on the {self.resource} {self.name} ({refused})"


def refused(
    site: str, operation: AclOperation, resource: AclResource, answers: Mapping[str, object]
) -> Iterator[MissingRight]:
    """Those of the answers, by name, that are refusals of this operation. Pure."""
    code = ErrorCode[f"{resource.name}_AUTHORIZATION_FAILED"]
    for name, answer in sorted(answers.items()):
        if isinstance(answer, KafkaError) and answer.code is code:
            yield MissingRight(site, operation.word, resource.name.lower(), name)


def may_not_read(names: Iterable[str], operations: Mapping[int, Set[tuple[str, AclOperation]]]) -> set[str]:
    """Those of the topics that each broker which may be asked about them shows, and none lets one read. Pure."""
    told = {one for of_broker in operations.values() for one in of_broker}
    return {name for name in names if (name, AclOperation.DESCRIBE) in told and (name, AclOperation.READ) not in told}


def in_words(missing: Iterable[MissingRight], principals: Mapping[str, str]) -> list[str]:
    """Each as one line. `principals`: as whom farshore comes, by site. Pure."""
    return [right.of(principals[right.site]) for right in missing]


def in_a_line(lines: list[str]) -> str:
    more = f"; and {len(lines) - NAMED_IN_A_LINE:,} more" if len(lines) > NAMED_IN_A_LINE else ""
    return "; ".join(lines[:NAMED_IN_A_LINE]) + more
