"""A source that is locked, and for which farshore has no key: nothing says that it is dead."""

from __future__ import annotations

import asyncio
import math
import struct
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.base.address import Address
from broker.client.security.settings import Mechanism, Sasl, Secret, Security, Tls
from broker.client.site import Site
from failover.observing import contact
from failover.observing.contact import Patience, call_brokers, reach
from tests.broker.client.peer import peer
from tests.broker.client.security.test_login import LockedBroker
from tests.broker.running import running_broker
from tests.failover.observing.test_contact import MUTE_MS, Far, mute, served


def now_ms() -> int:
    return 0


@pytest.mark.parametrize("secret", ["wrong", None])
async def test_who_lets_nobody_in_may_live(secret: str | None, tmp_path: Path) -> None:
    if secret is not None:
        (tmp_path / "secret").write_text(secret)
    sasl = Sasl(Mechanism.PLAIN, "farshore", Secret(file=tmp_path / "secret"))
    async with peer(LockedBroker().answer) as address:
        (found,) = await call_brokers(Site("east", str(address), security=Security(sasl=sasl)).bootstrap(), now_ms)
    assert (found.answered, found.may_live) == (False, True)
    assert "secret" in found.error or "refuses the login" in found.error


async def test_who_is_gone_is_dead_though_its_secret_is_gone_with_it(
    tmp_path: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact, "REFUSED_MS", 0)
    sasl = Sasl(Mechanism.PLAIN, "farshore", Secret(file=tmp_path / "secret"))
    site = Site("east", str(Address("127.0.0.1", unused_tcp_port)), security=Security(sasl=sasl))
    (found,) = await call_brokers(site.bootstrap(), now_ms)
    assert not found.may_live


async def test_who_cannot_even_be_asked_may_live(tmp_path: Path, unused_tcp_port: int) -> None:
    site = Site("east", f"127.0.0.1:{unused_tcp_port}", security=Security(Tls(tmp_path / "nowhere")))
    (found,) = await call_brokers(site.bootstrap(), now_ms)
    assert (found.answered, found.may_live) == (False, True)
    assert "nowhere" in found.error


@dataclass
class FirstWord(Far):
    """Lets one request through on each connection, and no more."""

    async def _ask(self, reader: asyncio.StreamReader, before: asyncio.StreamWriter) -> None:
        size = await reader.readexactly(4)
        before.write(size + await reader.readexactly(struct.unpack(">i", size)[0]))
        await reader.read()
        before.close()


async def test_who_has_begun_to_answer_is_waited_for_and_not_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login takes several answers: a source that was slow with each passed for dead."""
    monkeypatch.setattr(contact, "SOURCE_PROBE_MS", MUTE_MS)
    (tmp_path / "secret").write_text("secret")
    sasl = Sasl(Mechanism.PLAIN, "farshore", Secret(file=tmp_path / "secret"))
    async with running_broker(tmp_path / "east") as east, served(FirstWord(east)) as address, mute() as silent:
        site = Site("east", f"{address},{silent}", security=Security(sasl=sasl))
        async with AsyncExitStack() as stack:
            source, answers, _ = await reach(stack, site, now_ms, patience=Patience(MUTE_MS // 2, math.inf))
    assert source is None
    slow, dead = sorted(answers, key=lambda answer: answer.address != address)
    assert (slow.answered, slow.may_live, dead.may_live) == (False, True, False)
    assert round(min(slow.seconds, dead.seconds) * 1000) >= MUTE_MS, "nobody is given up while one speaks"
