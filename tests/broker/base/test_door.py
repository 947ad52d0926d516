"""A listening socket: few are let in a turn, and who was let in can be ended."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import pytest

from broker.base import door as limits
from broker.base.address import Address
from broker.base.door import Arrival, Door, bound_sockets

HERE = Address("127.0.0.1", 0)
COUNT = 3 * limits.AT_ONCE_MAX


class Full(socket.socket):
    """Once no more files can be opened."""

    failures = 1

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def turn() -> None:
    await asyncio.sleep(0)


def dialled(port: int) -> socket.socket:
    return socket.create_connection((HERE.host, port))


async def test_others_have_their_turn_while_many_wait() -> None:
    came: list[tuple[int, socket.socket]] = []
    turns = 0
    door = await Door.opened(HERE, lambda one, host: came.append((turns, one)))
    waiting = [dialled(door.port) for _ in range(COUNT)]
    async with asyncio.timeout(10):
        while len(came) < COUNT:
            await turn()
            turns += 1
    door.close()
    for one in (*waiting, *(one for _, one in came)):
        one.close()
    in_turn = [at for at, _ in came]
    assert max(in_turn.count(at) for at in in_turn) <= limits.AT_ONCE_MAX


async def test_without_files_it_rests_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "REST_S", 0.01)
    came: asyncio.Queue[socket.socket] = asyncio.Queue()
    listener = Full()
    listener.setblocking(False)
    listener.bind(HERE)
    door = Door([listener], lambda one, host: came.put_nowait(one))
    door.open()
    with dialled(door.port), await came.get():
        assert "nobody is let in for 0.01 s: Too many open files" in caplog.text
    door.close()
    door.close()


async def test_a_port_that_is_taken_is_told_and_nothing_stays_open() -> None:
    door = await Door.opened(HERE, lambda one, host: one.close())
    with pytest.raises(OSError):
        await Door.opened(HERE._replace(port=door.port), lambda one, host: one.close())
    door.close()


def test_an_address_that_this_machine_lacks_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """As ::1 of localhost, in a container without IPv6."""
    here = (socket.AF_INET, socket.SOCK_STREAM, 0, HERE)
    lacking = [(socket.AF_INET, socket.SOCK_STREAM, 0, ("192.0.2.1", 0)), (9999, socket.SOCK_STREAM, 0, ("::1", 0))]
    (one,) = bound_sockets([*lacking, here, here])
    with one:
        assert one.getsockname()[0] == HERE.host
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == [
        where for *_, where in lacking
    ]
    for each in lacking:
        with pytest.raises(OSError):
            bound_sockets([each])


async def test_who_shakes_no_hands_is_ended_when_others_need_the_place() -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    arrival = Arrival(here, "host")
    entering = asyncio.create_task(arrival.enter(asyncio.Protocol(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), 60_000))
    await turn()
    arrival.abort("another comes")
    arrival.abort("another comes")
    with pytest.raises(asyncio.CancelledError):
        await entering
    await turn()
    with there:
        assert there.recv(1) == b""


async def test_who_is_ended_before_anything_was_begun_is_closed() -> None:
    here, there = socket.socketpair()
    arrival = Arrival(here, "host")
    arrival.abort("another comes")
    assert await arrival.enter(asyncio.Protocol(), None, 1) is None
    with there:
        assert there.recv(1) == b""
