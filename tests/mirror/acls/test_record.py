"""What a link writes down of ACLs is what it reads; what cannot be read makes nobody the maker of anything."""

from __future__ import annotations

import pytest

from mirror.acls.record import (
    AclLook,
    AclRecord,
    RecordEntry,
    RecordFold,
    held_entries,
    look_entry,
    made_entries,
    unmade_entries,
)
from tests.mirror.acls.acls import READ, WRITE, allow, deny, of_group, prefixed

MADE = [
    allow("a", READ, "orders"),
    prefixed(deny("b", WRITE, "or")),
    of_group(allow("Ü=x y", READ, "g", host="10.0.0.7")),
]
HELD = frozenset({allow("a", WRITE, "orders"), allow("b", WRITE, "orders")})


def folded(*entries: RecordEntry) -> AclRecord:
    fold = RecordFold()
    for offset, entry in enumerate(entries):
        fold.take(offset, *entry)
    return fold.record()


def test_what_is_written_is_read() -> None:
    look = AclLook(7, to_create=1, held=2, failed=3, trouble="no", hint="yes")
    record = folded(*made_entries(MADE, 5), *held_entries(HELD, AclRecord(), 5), look_entry(look))
    assert record == AclRecord(True, frozenset(MADE), HELD, look)


def test_what_is_taken_back_is_gone() -> None:
    first = folded(*made_entries(MADE, 5), *held_entries(HELD, AclRecord(), 5))
    less = frozenset({allow("b", WRITE, "orders")})
    changes = list(held_entries(less, first, 6))
    assert len(changes) == 1
    record = folded(*made_entries(MADE, 5), *held_entries(HELD, AclRecord(), 5), *unmade_entries(MADE[:1]), *changes)
    assert (record.made, record.held) == (frozenset(MADE[1:]), less)


@pytest.mark.parametrize(
    "entry",
    [
        (b"rubbish", b"{}"),
        (b'["made",2,"t",3,"User:a","*",3]', b'{"v":1}'),
        (b'["made",2,"t",3,"User:a","*",3,"3"]', b'{"v":1}'),
        (b'["other",2,"t",3,"User:a","*",3,3]', b'{"v":1}'),
        (b'["made",2,"t",3,"User:a","*",3,3]', b'{"v":2}'),
        (b'["look"]', b'{"v":1,"at_ms":1,"more":2}'),
    ],
)
def test_an_entry_that_cannot_be_read_is_damage(entry: RecordEntry) -> None:
    record = folded(*made_entries(MADE, 5), entry)
    assert "offset 3" in record.damage
    assert not record.tells
