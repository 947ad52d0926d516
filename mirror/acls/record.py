"""What a link knows of ACLs at its target, in the topic `__farshore-acls-LINK` there: which of them it made, which wait
for a promotion, and what the last look found.

An ACL has no room for who made it, and a right that waits may be asked for when its source is gone. The topic has one
partition and is compacted; its worker and commands write to it, unfenced: each entry is about one ACL, and says what
both would say. Entries are JSON; one that cannot be read is damage, and then nobody knows what the others lack.
Whoever may write there may say anything of what the link carries; what is beyond that is not gone by.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

from broker.client.acl_bindings import Acl
from mirror.acls.carrying import may_be_carried
from mirror.link import Link
from mirror.offsets.keys import dump_json

ACLS_VERSION: Final = 1
LOOK_KEY: Final = ("look",)


@dataclass(frozen=True, slots=True)
class AclLook:
    """What the worker's last pass found, in numbers of ACLs. `to_create`: shown, and made by the next pass; `failed`:
    they could not be made, the first for the reason in `failure`; `trouble`: why nothing could be
    compared, "" where it could.
    """

    at_ms: int
    to_create: int = 0
    to_remove: int = 0
    held: int = 0
    withheld: int = 0
    open_at_target: int = 0
    failed: int = 0
    failure: str = ""
    trouble: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class AclRecord:
    """All of it. `exists` is False where the topic is not there; `damage` says what of it cannot be read. `beyond`:
    what it has of made or held ACLs that are about nothing that the link carries; they are among neither.
    """

    exists: bool = False
    made: frozenset[Acl] = frozenset()
    held: frozenset[Acl] = frozenset()
    look: AclLook | None = None
    damage: str = ""
    beyond: frozenset[Acl] = frozenset()

    @property
    def tells(self) -> bool:
        """Whether an ACL that is not among those that were made was made by somebody else."""
        return self.exists and not self.damage


RecordEntry: TypeAlias = tuple[bytes, bytes | None]
"""A key and a value; None takes it back."""


@dataclass
class RecordFold:
    """What the entries come to, in the order of their writing."""

    link: Link
    made: set[Acl] = field(default_factory=set)
    held: set[Acl] = field(default_factory=set)
    look: AclLook | None = None
    damage: str = ""

    def take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            kind, *fields = json.loads(key or b"")
            told = None if value is None else _checked(json.loads(value))
            if kind == "look":
                self.look = None if told is None else AclLook(**told)
                return
            acls = {"made": self.made, "held": self.held}[kind]
            acl = _acl(fields)
        except (ValueError, KeyError, TypeError) as error:
            self.damage = f"the entry at offset {offset} cannot be read: {error!r}"
            return
        if told is None:
            acls.discard(acl)
        else:
            acls.add(acl)

    def record(self) -> AclRecord:
        beyond = frozenset(acl for acl in self.made | self.held if not may_be_carried(self.link, acl))
        made, held = frozenset(self.made - beyond), frozenset(self.held - beyond)
        return AclRecord(True, made, held, self.look, self.damage, beyond)


def made_entries(acls: Iterable[Acl], at_ms: int) -> Iterator[RecordEntry]:
    """The link is about to make these."""
    return ((_key("made", acl), _value({"at_ms": at_ms})) for acl in acls)


def unmade_entries(acls: Iterable[Acl]) -> Iterator[RecordEntry]:
    """They are gone, or were not made after all."""
    return ((_key("made", acl), None) for acl in acls)


def held_entries(held: frozenset[Acl], known: AclRecord, at_ms: int) -> Iterator[RecordEntry]:
    """What changes where these wait from now on, and no others."""
    yield from ((_key("held", acl), _value({"at_ms": at_ms})) for acl in sorted(held - known.held))
    yield from ((_key("held", acl), None) for acl in sorted(known.held - held))


def dropped_entries(acls: Iterable[Acl]) -> Iterator[RecordEntry]:
    """Nothing more is said of these."""
    return ((_key(kind, acl), None) for acl in sorted(acls) for kind in ("made", "held"))


def look_entry(look: AclLook) -> RecordEntry:
    return dump_json([*LOOK_KEY]), _value(asdict(look))


def _key(kind: str, acl: Acl) -> bytes:
    return dump_json([kind, *(_plain(part) for part in acl)])


def _value(fields: Mapping[str, Any]) -> bytes:
    return dump_json({"v": ACLS_VERSION, **fields})


def _plain(value: int | str) -> int | str:
    return value if isinstance(value, str) else int(value)


def _checked(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict) or told.pop("v", None) != ACLS_VERSION:
        raise ValueError("not an entry of this version")
    return told


def _acl(fields: list[Any]) -> Acl:
    acl = Acl(*fields)
    for value, kind in zip(acl, (int, str, int, str, str, int, int), strict=True):
        if not isinstance(value, kind):
            raise ValueError(f"{value!r} in an ACL")
    return acl
