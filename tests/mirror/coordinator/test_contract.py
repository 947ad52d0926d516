"""What every coordinator must keep, whatever it stands on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from mirror.coordinator.embedded import EmbeddedCoordinator
from mirror.coordinator.model import Coordinator
from mirror.errors import LinkFenced

Make = Callable[[Sequence[str]], Coordinator]


@pytest.fixture(params=[EmbeddedCoordinator])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a coordinator of some links; each implementation is a parameter."""
    made: Make = request.param
    return made


async def test_a_single_member_gets_every_link(make: Make) -> None:
    async with make(["east-west", "west-east"]).member() as membership:
        assert set(membership.assigned_links) == {"east-west", "west-east"}


async def test_every_joining_has_a_later_epoch(make: Make) -> None:
    coordinator = make(["east-west"])
    async with coordinator.member() as first:
        pass
    async with coordinator.member() as second:
        assert second.epoch > first.epoch


async def test_leaving_by_an_error_gives_the_links_back(make: Make) -> None:
    coordinator = make(["east-west"])
    with pytest.raises(ZeroDivisionError):
        async with coordinator.member():
            raise ZeroDivisionError
    async with coordinator.member() as membership:
        assert membership.assigned_links == ("east-west",)


async def test_two_members_never_share_a_link() -> None:
    coordinator = EmbeddedCoordinator(["east-west"])
    async with coordinator.member():
        with pytest.raises(LinkFenced):
            async with coordinator.member():
                raise AssertionError("a second member got in")
