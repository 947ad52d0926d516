"""Which connection of nobody known goes when another one comes."""

from __future__ import annotations

from dataclasses import dataclass

from broker.base.strangers import Strangers


@dataclass(eq=False)
class One:
    host: str
    is_stranger: bool = True
    closed: bool = False

    def abort(self, reason: str) -> None:
        self.closed = True


def test_of_the_host_with_the_most_the_longest_goes() -> None:
    strangers = Strangers(4)
    quiet, *many = One("quiet"), One("many"), One("many"), One("many")
    assert [strangers.add(each) for each in (quiet, *many)] == [None] * 4
    for index in range(3):
        assert strangers.add(One("many")) is many[index]
    assert strangers.add(One("third")) is not quiet


def test_who_has_logged_in_or_is_gone_makes_room() -> None:
    strangers = Strangers(4)
    known, closed, gone, last = (One("host") for _ in range(4))
    for each in (known, closed, gone, last):
        assert strangers.add(each) is None
    known.is_stranger, closed.closed = False, True
    strangers.discard(gone)
    strangers.discard(gone)
    assert strangers.add(One("host")) is None
    assert strangers.add(One("host")) is None, "who had logged in was forgotten"
    assert strangers.add(One("host")) is None, "who was closed was forgotten"
    assert strangers.add(One("host")) is last
