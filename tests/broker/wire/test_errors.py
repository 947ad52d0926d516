"""The table of error codes against another implementation's."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from broker.wire.errors import CorruptBatch, ErrorCode, MalformedMessage, UnsupportedVersion, WireError


def test_codes_names_and_retriability() -> None:
    ours = {code.name.lower(): (int(code), code.retriable) for code in ErrorCode}
    assert ours == {code.name: (int(code), code.retriable) for code in KioErrorCode}


@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (ErrorCode.REBALANCE_IN_PROGRESS, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.INVALID_PRODUCER_EPOCH, False),
        (ErrorCode.CONCURRENT_TRANSACTIONS, True),
    ],
)
def test_a_few_by_hand(code: ErrorCode, retriable: bool) -> None:
    assert code.retriable is retriable
    assert code.description


def test_codes_newer_than_the_table() -> None:
    assert ErrorCode.of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.of(30_000) is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("cls", [MalformedMessage, UnsupportedVersion, CorruptBatch])
def test_the_error_tree(cls: type[WireError]) -> None:
    assert issubclass(cls, WireError)
    assert cls.hint
    assert cls.retriable is False
