"""What a request takes, as a value: the cases are in topic_rights.py and group_rights.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.schema import Message, Struct
from broker.wire.vocabulary import CLUSTER_NAME, AclOperation, AclResource

FLIGHTS: Final = "flights"
"""A topic that is there; of `NONE` there is nothing."""
NONE: Final = "none"
DELETED: Final = "deleted"
"""Is there again for each question."""
GROUP, ID = "analysts", "tx-1"
PRODUCER: Final = (77, 0)
REFUSALS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class Right(NamedTuple):
    operation: AclOperation
    kind: AclResource
    name: str


def topic(operation: AclOperation, name: str = FLIGHTS) -> Right:
    return Right(operation, AclResource.TOPIC, name)


def group(operation: AclOperation) -> Right:
    return Right(operation, AclResource.GROUP, GROUP)


def cluster(operation: AclOperation) -> Right:
    return Right(operation, AclResource.CLUSTER, CLUSTER_NAME)


def transactional(operation: AclOperation) -> Right:
    return Right(operation, AclResource.TRANSACTIONAL_ID, ID)


Op = AclOperation
EVERY_RIGHT: Final = [
    make(operation)
    for make in (topic, lambda o: topic(o, NONE), lambda o: topic(o, DELETED), group, cluster, transactional)
    for operation in AclOperation
    if operation is not AclOperation.ANY
]


def codes_in(answer: Any) -> Iterator[int]:
    """Every error code of an answer, wherever it stands."""
    if isinstance(answer, Struct):
        for one in fields(answer):  # type: ignore[arg-type]
            value = getattr(answer, one.name)
            if one.name.endswith("error_code"):
                yield value
            else:
                yield from codes_in(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from codes_in(each)


def refusals(answer: Any) -> set[ErrorCode]:
    return {ErrorCode.of(code) for code in codes_in(answer)} & REFUSALS


@dataclass(frozen=True)
class Case:
    """`needs`: one of these, with all that is in it. `refused`: by what codes, without any right. `passes`: where no
    code tells. `versions`: in which it can be asked; None: in all. The request has the fields of each, and a version
    that has not got one leaves it out.
    """

    key: ApiKey
    version: int
    request: Callable[[], Message]
    needs: tuple[frozenset[Right], ...]
    refused: ErrorCode
    what: str = ""
    passes: Callable[[Any], bool] | None = None
    versions: tuple[int, int] | None = None

    def is_allowed(self, answer: Any) -> bool:
        return self.passes(answer) if self.passes else not refusals(answer)

    def __str__(self) -> str:
        return f"{self.key.name.lower()} {self.what}".strip()


T29, G30, C31, X53 = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


def one(*rights: Right) -> tuple[frozenset[Right], ...]:
    return (frozenset(rights),)


def any_of(*rights: Right) -> tuple[frozenset[Right], ...]:
    return tuple(frozenset({right}) for right in rights)


NEEDS_NOTHING: Final = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""Asked by who is nobody yet."""
