"""What a link writes down of ACLs is what it reads; what cannot be read makes nobody the maker of anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.acl_bindings import Acl
from broker.wire.vocabulary import AclPattern, AclResource
from mirror.acls.record import (
    AclLook,
    AclRecord,
    RecordEntry,
    RecordFold,
    dropped_entries,
    held_entries,
    look_entry,
    made_entries,
    unmade_entries,
)
from mirror.link import Link, TopicNames
from tests.mirror.acls.acls import ALL, READ, WRITE, allow, deny, link_of, of_group, prefixed

LINK = link_of("or.*")
MADE = [
    allow("a", READ, "orders"),
    prefixed(deny("b", WRITE, "or")),
    of_group(allow("Ü=x y", READ, "g-1", host="10.0.0.7")),
]
HELD = frozenset({allow("a", WRITE, "orders"), allow("b", WRITE, "orders")})


def folded(*entries: RecordEntry, link: Link = LINK) -> AclRecord:
    fold = RecordFold(link)
    for offset, entry in enumerate(entries):
        fold.take(offset, *entry)
    return fold.record()


def test_what_is_written_is_read() -> None:
    look = AclLook(7, to_create=1, held=2, failed=3, trouble="no", hint="yes")
    record = folded(*made_entries(MADE, 5), *held_entries(HELD, AclRecord(), 5), look_entry(look))
    assert record == AclRecord(True, frozenset(MADE), HELD, look)


@pytest.mark.parametrize(
    ("acl", "topic_names", "is_beyond"),
    [
        (allow("a", WRITE, "orders"), "same", False),
        (allow("a", WRITE, "orders"), "prefixed", True),
        (allow("a", WRITE, "east.orders"), "prefixed", False),
        (prefixed(allow("a", WRITE, "or")), "same", False),
        (prefixed(allow("a", WRITE, "east.or")), "prefixed", False),
        (prefixed(allow("a", WRITE, "east.o")), "prefixed", True),
        (prefixed(allow("a", WRITE, "o")), "same", True),
        (prefixed(allow("a", WRITE, "")), "same", True),
        (allow("a", WRITE, "wages"), "same", True),
        (allow("a", WRITE, "*"), "same", True),
        (allow("a", WRITE, "__farshore-canary-east-west"), "same", True),
        (allow("a", READ, "orders", pattern=AclPattern.MATCH), "same", True),
        (of_group(allow("a", READ, "g-1")), "same", False),
        (of_group(allow("a", READ, "*")), "same", True),
        (of_group(allow("a", READ, "others")), "same", True),
        (prefixed(of_group(allow("a", READ, "g-"))), "same", True),
        (allow("a", ALL, "kafka-cluster", kind=AclResource.CLUSTER), "same", True),
        (allow("a", ALL, "orders", kind=AclResource.TRANSACTIONAL_ID), "same", True),
    ],
)
def test_only_what_the_link_may_have_carried_is_gone_by(acl: Acl, topic_names: TopicNames, is_beyond: bool) -> None:
    link = replace(link_of("or.*", topic_names=topic_names), groups=("g-.*",))
    entries = [*made_entries([acl], 5), *held_entries(frozenset({acl}), AclRecord(), 5)]
    record, found = folded(*entries, link=link), frozenset({acl})
    assert (record.made, record.held, record.beyond) == (
        (frozenset(), frozenset(), found) if is_beyond else (found, found, frozenset())
    )
    assert folded(*entries, *dropped_entries([acl]), link=link) == AclRecord(exists=True)


def test_a_link_of_all_carries_neither_all_of_the_cluster_nor_what_is_internal() -> None:
    link = replace(link_of(".*"), groups=(".*",))
    beyond = {
        allow("a", WRITE, "*"),
        prefixed(allow("a", WRITE, "_")),
        allow("a", WRITE, "__consumer_offsets"),
        of_group(allow("a", READ, "*")),
    }
    assert folded(*made_entries(beyond, 5), link=link).beyond == beyond


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
