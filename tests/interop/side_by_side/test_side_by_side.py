"""The same requests to Apache Kafka 3.9 or 4.3 and to our broker; a difference without a written reason is a fault."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import pytest

from tests.interop.servers import FarshoreBroker, KafkaServer
from tests.interop.side_by_side import (
    config_cases,
    consumer_group_cases,
    data_cases,
    frame_cases,
    group_cases,
    session_cases,
    topic_cases,
    transaction_cases,
    user_cases,
)
from tests.interop.side_by_side.asking import Case, answers_of, differences
from tests.interop.side_by_side.reasons import REASONS, REASONS_OF_KAFKA_43

CASES = [
    *topic_cases.CASES,
    *config_cases.CASES,
    *data_cases.CASES,
    *group_cases.CASES,
    *transaction_cases.CASES,
    *session_cases.CASES,
    *frame_cases.CASES,
    *user_cases.CASES,
]
CASES_OF_KAFKA_43 = [*session_cases.CASES_OF_KAFKA_43, *consumer_group_cases.CASES_OF_KAFKA_43]
# What 3.9 has too, where 4 might answer otherwise.
ALSO_OF_KAFKA_43: list[Case] = [
    *session_cases.CASES,
    *user_cases.CASES,
    topic_cases.describe_topic_partitions,
    data_cases.list_offsets,
    transaction_cases.describe_transactions,
    group_cases.a_groups_life,
    group_cases.join,
    group_cases.offset_fetch,
    group_cases.committed_offsets,
]


async def _compare(case: Case, kafka: KafkaServer, ours: FarshoreBroker) -> list[str]:
    prefix = f"{case.__name__}-{uuid.uuid4().hex[:6]}"
    theirs, own = await asyncio.gather(
        answers_of(case, kafka.bootstrap, prefix), answers_of(case, ours.bootstrap, prefix)
    )
    assert theirs, "the case asked nothing"
    return [f"{case.__name__}: {line}" for line in differences(theirs, own)]


def _reason(difference: str, patterns: Iterable[str]) -> str | None:
    where = difference.partition(": Kafka ")[0]
    return next((pattern for pattern in patterns if fnmatchcase(where, pattern)), None)


def _check(case: Case, found: list[str], reasons: Mapping[str, str], also: Mapping[str, str]) -> None:
    """Every difference has its reason in one of the two, and every reason of the first its difference."""
    print("\n".join(found))
    unexplained = [difference for difference in found if _reason(difference, [*reasons, *also]) is None]
    assert not unexplained, "\n".join(unexplained)
    used = {_reason(difference, reasons) for difference in found}
    unused = [pattern for pattern in reasons if pattern.startswith(f"{case.__name__}: ") and pattern not in used]
    assert not unused, f"nothing differs so any more: {unused}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_our_answers_are_kafkas(case: Case, kafka_39: KafkaServer, shared_broker: FarshoreBroker) -> None:
    _check(case, await _compare(case, kafka_39, shared_broker), REASONS, {})


@pytest.mark.parametrize("case", [*CASES_OF_KAFKA_43, *ALSO_OF_KAFKA_43], ids=lambda case: case.__name__)
async def test_our_answers_are_those_of_kafka_4(
    case: Case, kafka_43: KafkaServer, shared_broker: FarshoreBroker
) -> None:
    _check(case, await _compare(case, kafka_43, shared_broker), REASONS_OF_KAFKA_43, REASONS)


def test_every_reason_belongs_to_a_case() -> None:
    every = [*CASES, *CASES_OF_KAFKA_43]
    names = {case.__name__ for case in every}
    for pattern in [*REASONS, *REASONS_OF_KAFKA_43]:
        assert pattern.startswith("*/") or any(fnmatchcase(name, pattern.partition(":")[0]) for name in names), pattern
    assert len(names) == len(every)


def test_a_difference_is_seen_wherever_it_is() -> None:
    kafka = {"q": {"topics": {"t": {"error_code": "NONE", "rows": [1, 2]}}, "more": None}}
    ours = {"q": {"topics": {"t": {"error_code": "NONE", "rows": [1, 3]}, "u": {}}, "more": []}}
    assert [line.partition(": ")[0] for line in differences(kafka, ours)] == [
        "q/more",
        "q/topics/t/rows/1",
        "q/topics/u",
    ]
    assert list(differences(kafka, kafka)) == []
