"""Faults on a real toxiproxy server: they are really there, and they are always gone afterwards."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from toxiproxy import Toxiproxy

from broker.base.address import Address
from chaos.errors import FaultNotInjected, ToxiproxyMissing
from chaos.toxics import Latency, connect, find_server, latency, proxied, running_server
from deploy.cli.chaos import TOOLS_FOLDERS
from tests.ports import free_port

FAULT = Latency(latency_ms=400, jitter_ms=0)
DEADLINE_S = 180.0


@pytest.fixture
def server() -> Iterator[Toxiproxy]:
    with running_server(find_server(TOOLS_FOLDERS)) as started:
        yield started


@pytest.fixture
def echo() -> Iterator[str]:
    """HOST:PORT of a server that sends back what it gets."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1024):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # the test is over
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    acceptor.join(DEADLINE_S)


def round_trip_ms(address: str) -> float:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as connection:
        started_s = time.monotonic()
        connection.sendall(b"ping")
        assert connection.recv(16) == b"ping"
        return (time.monotonic() - started_s) * 1000


def test_latency_is_really_added_and_gone_after_the_context(server: Toxiproxy, echo: str) -> None:
    with proxied(server, "run", (echo,)) as proxies:
        listen = proxies[echo].listen
        assert min(round_trip_ms(listen) for _ in range(5)) < FAULT.latency_ms
        with latency(proxies, FAULT):
            assert round_trip_ms(listen) >= FAULT.latency_ms
        assert proxies[echo].toxics() == {}
        assert min(round_trip_ms(listen) for _ in range(5)) < FAULT.latency_ms
    assert server.proxies() == {}


def test_every_proxy_gets_the_fault_and_loses_it(server: Toxiproxy, echo: str) -> None:
    other = f"127.0.0.1:{free_port()}"
    with proxied(server, "run", (echo, other)) as proxies:
        with latency(proxies, FAULT):
            assert [list(proxy.toxics()) for proxy in proxies.values()] == [["latency"], ["latency"]]
        assert [list(proxy.toxics()) for proxy in proxies.values()] == [[], []]
    assert server.proxies() == {}


@pytest.mark.parametrize("broken", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_after_an_exception_or_ctrl_c(
    server: Toxiproxy, echo: str, broken: type[BaseException]
) -> None:
    with (
        pytest.raises(broken),
        proxied(server, "run", (echo,)) as proxies,
        latency(proxies, FAULT),
    ):
        raise broken
    assert server.proxies() == {}


def test_nothing_is_left_after_a_cancellation(server: Toxiproxy, echo: str) -> None:
    async def main() -> None:
        on = asyncio.Event()

        async def faulty() -> None:
            with proxied(server, "run", (echo,)) as proxies, latency(proxies, FAULT):
                on.set()
                await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(faulty())
            await on.wait()
            assert len(server.proxies()) == 1
            task.cancel()

    asyncio.run(main())
    assert server.proxies() == {}


def test_proxies_of_others_stay(server: Toxiproxy, echo: str) -> None:
    server.create(upstream=echo, name="somebody-elses")
    with proxied(server, "run", (echo,)) as proxies, latency(proxies, FAULT):
        assert len(server.proxies()) == 2
    assert list(server.proxies()) == ["somebody-elses"]


def test_a_proxy_removed_by_somebody_else_is_no_failure_of_the_clean_up(server: Toxiproxy, echo: str) -> None:
    with proxied(server, "run", (echo,)) as proxies, latency(proxies, FAULT):
        proxies[echo].destroy()
    assert server.proxies() == {}


def test_a_server_that_is_gone_takes_its_faults_with_it(echo: str) -> None:
    with running_server(find_server(TOOLS_FOLDERS)) as server:
        inner = proxied(server, "run", (echo,))
        proxies = inner.__enter__()
        fault = latency(proxies, FAULT)
        fault.__enter__()
    with pytest.raises(requests.ConnectionError):
        server.proxies()
    fault.__exit__(None, None, None)
    inner.__exit__(None, None, None)


def test_a_fault_that_cannot_be_put_on_is_no_silent_run(echo: str) -> None:
    with running_server(find_server(TOOLS_FOLDERS)) as server:
        inner = proxied(server, "run", (echo,))
        proxies = inner.__enter__()
    with pytest.raises(FaultNotInjected, match="took no toxic"), latency(proxies, FAULT):
        pytest.fail("the fault was not put on, but the run went on")
    inner.__exit__(None, None, None)
    with pytest.raises(FaultNotInjected, match="made no proxy"), proxied(server, "run", (echo,)):
        pytest.fail("the proxy was not made, but the run went on")


def test_a_toxic_that_toxiproxy_refuses_is_told(server: Toxiproxy, echo: str) -> None:
    with (
        proxied(server, "run", (echo,)) as proxies,
        latency(proxies, FAULT),
        pytest.raises(FaultNotInjected),
        latency(proxies, FAULT),
    ):
        pytest.fail("there cannot be two toxics of one name")
    assert server.proxies() == {}


def test_no_server_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToxiproxyMissing) as missing:
        find_server((tmp_path,))
    assert "go install" in missing.value.hint
    with pytest.raises(ToxiproxyMissing, match="no toxiproxy server answers"):
        connect(Address("127.0.0.1", free_port()), 0.1)
