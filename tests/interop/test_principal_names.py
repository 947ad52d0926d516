"""Whom Kafka makes of a certificate: its own classes are asked, for the table of the broker's tests, and more."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from broker.access.distinguished_names import distinguished_name
from tests.broker.access.java_names import BMP, CN, EMAIL, IA5, NAMES, NUMERIC, OU, RULES, T61, UTF8, attribute, name
from tests.interop.servers import java, kafka_class_path, run
from tests.interop.warm_tools import command_of

PROGRAM: Final = Path(__file__).with_name("PrincipalNames.java")
ALPHABET: Final = "aB7 \r\n\0\t,=+<>#;\"\\/'é😀\ud7ff\u00a0\u2028"
HALF_WRITTEN: Final = (
    b"\xc3",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"\xff",
    b"\x80",
    b"\xc0\x80",
    b"\xf5\x80",
    b"\xed\xa0\x80",
    b"\xed\xa0",
    b"\xed",
    b"a",
    b"=",
)


def told(version: str, asked: list[str]) -> list[str]:
    command = command_of([java(), "-Xmx64m", "-XX:TieredStopAtLevel=1"], kafka_class_path(version), PROGRAM)
    return [bytes.fromhex(line).decode() for line in run(command, stdin="\n".join(asked)).splitlines()]


def any_name(chance: random.Random) -> bytes:
    def one() -> bytes:
        if chance.random() < 0.2:
            value = b"".join(chance.choices(HALF_WRITTEN, k=chance.randrange(6)))
        else:
            value = "".join(chance.choices(ALPHABET, k=chance.randrange(8))).encode()
        return attribute(chance.choice((CN, OU, EMAIL, "550405")), value, chance.choice((UTF8, T61, IA5, NUMERIC, BMP)))

    return name(*(b"".join(one() for _ in range(chance.randint(1, 2))) for _ in range(chance.randint(1, 4))))


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_kafka_makes_the_same_of_each_name(version: str) -> None:
    chance = random.Random(20)
    names = [*(subject for subject, _ in NAMES), *(any_name(chance) for _ in range(3000))]
    found = told(version, [subject.hex() for subject in names])
    assert found[: len(NAMES)] == [text for _, text in NAMES]
    others = [(each.hex(), text, distinguished_name(each)) for each, text in zip(names, found, strict=True)]
    assert [each for each in others if each[1] != each[2]] == []


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_kafkas_rules_make_the_same_of_each_name(version: str) -> None:
    found = told(version, [f"{rules.encode().hex()} {text.encode().hex()}" for rules, text, _ in RULES])
    assert found == [user for _, _, user in RULES]
