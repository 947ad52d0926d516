"""The sums of a range see each kind of difference, alone and in pairs that would cancel each other out in weaker ones.

Each case is a partition with a range of its own: records at the source, and what became of them at the target. All are
digested in one job; the weaker sums are planted, and the same cases must find each.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pyspark.sql import functions as F

from monitoring.audit import digest
from monitoring.audit.model import AuditVerdict
from monitoring.audit.reader import RECORD_SCHEMA

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

CASES_OF_EACH = 12
EQUAL, DIFFERS, MOVED = AuditVerdict.EQUAL, AuditVerdict.DIFFERS, AuditVerdict.MOVED


@dataclass(frozen=True)
class Rec:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    at_ms: int


Mutation = Callable[[random.Random, list[Rec]], list[Rec]]


def some_bytes(rng: random.Random) -> bytes | None:
    return rng.choice((None, b"", b"a", b"b", rng.randbytes(rng.randrange(1, 40))))


def some_record(rng: random.Random) -> Rec:
    headers = tuple((rng.choice("hij"), some_bytes(rng)) for _ in range(rng.choice((0, 0, 1, 3))))
    return Rec(some_bytes(rng), some_bytes(rng), headers, rng.randrange(-5, 10**13))


def another(rng: random.Random, record: Rec) -> Rec:
    while (found := some_record(rng)) == record:
        pass
    return found


def at_one(change: Callable[[random.Random, Rec], Rec]) -> Mutation:
    """One record becomes another one."""

    def mutation(rng: random.Random, records: list[Rec]) -> list[Rec]:
        at = rng.randrange(len(records))
        return [*records[:at], change(rng, records[at]), *records[at + 1 :]]

    return mutation


def other_bytes(rng: random.Random, known: bytes | None) -> bytes | None:
    return rng.choice([item for item in (None, b"", b"\0", (known or b"") + b"x") if item != known])


def one_bit(rng: random.Random, record: Rec) -> Rec:
    value = bytearray(record.value or b"?")
    value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
    return replace(record, value=bytes(value))


def other_header(_: random.Random, record: Rec) -> Rec:
    return replace(record, headers=(*record.headers, ("h", None)))


def other_nulls(rng: random.Random, records: list[Rec]) -> list[Rec]:
    """The same headers, and the same bytes of their values; another one has none."""
    at = rng.randrange(len(records))
    values: list[bytes | None] = [None, rng.choice((b"", b"a", b"b", b",", b",a", b"\xff")), b"", None]
    others = list(values)
    while others == values:
        rng.shuffle(others)
    before, after = (replace(records[at], headers=tuple(("h", value) for value in found)) for found in (values, others))
    records[at] = before
    return [*records[:at], after, *records[at + 1 :]]


def swapped(rng: random.Random, records: list[Rec]) -> list[Rec]:
    first, second = rng.sample(range(len(records)), 2)
    if records[first] == records[second]:
        records[second] = another(rng, records[first])
    found = list(records)
    found[first], found[second] = found[second], found[first]
    return found


def lost_and_doubled(rng: random.Random, records: list[Rec]) -> list[Rec]:
    """As many records, and the same bytes: one stands in another one's place."""
    first, second = rng.sample(range(len(records)), 2)
    records[second] = replace(records[first], value=bytes(len(records[first].value or b"")), key=b"k")
    records[first] = replace(records[second], value=bytes([1] * len(records[second].value or b"")), key=b"j")
    found = list(records)
    found[first] = found[second]
    return found


def pair_for_pair(rng: random.Random, records: list[Rec]) -> list[Rec]:
    """Two equal records become two other equal ones of their size: both pairs are nothing in an xor."""
    first, second = rng.sample(range(len(records)), 2)
    records[first] = records[second] = Rec(b"k", b"aa", (), 5)
    found = list(records)
    found[first] = found[second] = Rec(b"k", b"bb", (), 5)
    return found


def null_and_value(rng: random.Random, records: list[Rec]) -> list[Rec]:
    """What was the key is the value: the same bytes in the same order."""
    at = rng.randrange(len(records))
    records[at] = Rec(None, b"a", (), 5)
    return [*records[:at], Rec(b"a", None, (), 5), *records[at + 1 :]]


MUTATIONS: dict[str, tuple[Mutation, AuditVerdict]] = {
    "the same": (lambda _, records: list(records), EQUAL),
    "missing": (lambda rng, records: records[: (at := rng.randrange(len(records)))] + records[at + 1 :], DIFFERS),
    "extra": (lambda rng, records: [*records, some_record(rng)], DIFFERS),
    "doubled": (lambda rng, records: [*records, rng.choice(records)], DIFFERS),
    "key": (at_one(lambda rng, item: replace(item, key=other_bytes(rng, item.key))), DIFFERS),
    "value": (at_one(lambda rng, item: replace(item, value=other_bytes(rng, item.value))), DIFFERS),
    "one bit": (at_one(one_bit), DIFFERS),
    "header": (at_one(other_header), DIFFERS),
    "other nulls in headers": (other_nulls, DIFFERS),
    "timestamp": (at_one(lambda _, item: replace(item, at_ms=item.at_ms + 1)), DIFFERS),
    "swapped": (swapped, MOVED),
    "lost and doubled": (lost_and_doubled, DIFFERS),
    "pair for pair": (pair_for_pair, DIFFERS),
    "null and value": (null_and_value, DIFFERS),
}
CASES = [name for name in MUTATIONS for _ in range(CASES_OF_EACH)]


@pytest.fixture(scope="module")
def rows() -> tuple[list[Any], list[Any]]:
    """Of both sites; the same content at the same offsets but for the mutation."""
    rng = random.Random(12)
    sides: tuple[list[Any], list[Any]] = ([], [])
    for number, name in enumerate(CASES):
        source = [some_record(rng) for _ in range(rng.randrange(2, 8))]
        target = MUTATIONS[name][0](rng, source)
        for side, records in zip(sides, (source, target), strict=True):
            side.extend(
                ("t", number, offset, item.at_ms, item.key, item.value, list(item.headers) or None, offset)
                for offset, item in enumerate(records)
            )
    return sides


def judged(spark: Any, rows: tuple[list[Any], list[Any]]) -> dict[str, set[AuditVerdict]]:
    """The verdicts on each kind of case."""
    digests = []
    for side in rows:
        records = spark.createDataFrame(side, f"{RECORD_SCHEMA}, source_offset bigint")
        digests.append(digest.digest(digest.with_hashes(records.withColumn("range_start", F.lit(0)))))
    found: dict[str, set[AuditVerdict]] = {name: set() for name in MUTATIONS}
    for row in digest.compare(*digests).select("partition", "verdict").collect():
        found[CASES[row["partition"]]].add(AuditVerdict(row["verdict"]))
    return found


def test_each_difference_is_seen_and_nothing_else(spark: Any, rows: tuple[list[Any], list[Any]]) -> None:
    assert judged(spark, rows) == {name: {verdict} for name, (_, verdict) in MUTATIONS.items()}


def xor_for_sum(patched: pytest.MonkeyPatch) -> None:
    def halves(name: str, hashed: Any) -> list[Any]:
        xor = F.bit_xor(hashed)
        low = xor.bitwiseAND(F.lit((1 << 32) - 1))
        return [low.alias(f"{name}_low"), F.shiftrightunsigned(xor, 32).alias(f"{name}_high")]

    patched.setattr(digest, "_halves", halves)


def hashes_of_columns_alone(patched: pytest.MonkeyPatch) -> None:
    """Without a mark for null, as `xxhash64` skips it."""

    def with_hashes(records: Any) -> Any:
        hashed = F.xxhash64("timestamp_ms", "key", "value", "headers")
        return records.withColumns({"hash_1": hashed, "hash_2": hashed, "hash_position": F.xxhash64("offset", hashed)})

    patched.setattr(digest, "with_hashes", with_hashes)


def no_order(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(digest, "_whole", lambda name: F.col(f"{name}_low") if name != "ordered" else F.lit(0))


def no_sums(patched: pytest.MonkeyPatch) -> None:
    """Counts and bytes alone."""
    patched.setattr(digest, "_whole", lambda _: F.lit(0))


@pytest.mark.parametrize(
    ("plant", "missed"),
    [
        (xor_for_sum, {"pair for pair"}),
        (hashes_of_columns_alone, {"null and value"}),
        (no_order, {"swapped"}),
        (no_sums, {"one bit", "timestamp", "swapped", "lost and doubled", "pair for pair", "null and value"}),
    ],
)
def test_weaker_sums_are_found(
    spark: Any,
    rows: tuple[list[Any], list[Any]],
    plant: Callable[[pytest.MonkeyPatch], None],
    missed: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    found = judged(spark, rows)
    assert {name for name, (_, verdict) in MUTATIONS.items() if found[name] != {verdict}} >= missed
