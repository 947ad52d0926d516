"""Faults through toxiproxy: a server of our own, a proxy before each broker, toxics that always come off again."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from toxiproxy import Toxiproxy
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from broker.base.address import Address
from broker.base.children import die_with_parent, stop_child_now
from chaos.errors import FaultNotInjected, FaultNotRemoved, ToxiproxyMissing
from chaos.names import proxy_of

START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.05
SERVER_NAMES = ("toxiproxy-server", "toxiproxy")
API_ERRORS = (requests.RequestException, InvalidToxic, NotFound, ProxyExists)
INSTALL_HINT = (
    "run `make .cache/bin/toxiproxy-server` in farshore's checkout; or `go install "
    "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0`, and put the program `server` on PATH as `toxiproxy-server`"
)


@dataclass(frozen=True, slots=True)
class Latency:
    """The fault: every chunk of bytes from the source is held back."""

    latency_ms: int
    jitter_ms: int


def find_server(extra_folders: tuple[Path, ...]) -> Path:
    """The toxiproxy server's executable, on PATH or in one of `extra_folders`; ToxiproxyMissing when there is none."""
    for name in SERVER_NAMES:
        for folder in (None, *extra_folders):
            found = shutil.which(name, path=None if folder is None else str(folder))
            if found:
                return Path(found)
    raise ToxiproxyMissing("there is no toxiproxy server on this machine", hint=INSTALL_HINT)


@contextlib.contextmanager
def running_server(executable: Path) -> Iterator[Toxiproxy]:
    """Start a server on a free port of the loopback interface; it ends with the context."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [str(executable), "-host", "127.0.0.1", "-port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    try:
        yield connect(Address("127.0.0.1", port), START_TIMEOUT_S)
    finally:
        stop_child_now(process, STOP_TIMEOUT_S)


def connect(address: Address, timeout_s: float) -> Toxiproxy:
    """Talk to a server, waiting at most `timeout_s` for it to answer."""
    server = Toxiproxy()
    server.update_api_consumer(*address)
    deadline = time.monotonic() + timeout_s
    while not server.running():
        if time.monotonic() > deadline:
            raise ToxiproxyMissing(f"no toxiproxy server answers at {address}", hint=INSTALL_HINT)
        time.sleep(POLL_S)
    return server


@contextlib.contextmanager
def proxied(server: Toxiproxy, run_id: str, upstreams: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    """A proxy before each upstream address: address -> proxy (its `listen` is where to dial). Removed at the end."""
    proxies: dict[str, Any] = {}
    try:
        for number, upstream in enumerate(upstreams):
            proxies[upstream] = _create(server, upstream, proxy_of(run_id, number))
        yield proxies
    finally:
        remove_proxies(server, [proxy.name for proxy in proxies.values()])


@contextlib.contextmanager
def latency(proxies: Mapping[str, Any], fault: Latency) -> Iterator[None]:
    """The fault is on inside the context, proved to be on when it starts, and off after it whatever happened."""
    name = "latency"
    try:
        for proxy in proxies.values():
            _put_on(name, proxy, fault)
        yield
    finally:
        _take_off(name, proxies.values())


def _create(server: Toxiproxy, upstream: str, name: str) -> Any:
    try:
        return server.create(upstream=upstream, name=name)
    except API_ERRORS as error:
        raise FaultNotInjected(f"toxiproxy made no proxy for {upstream}: {error}") from error


def _put_on(name: str, proxy: Any, fault: Latency) -> None:
    """Add the toxic to one proxy and see it listed. Raises FaultNotInjected."""
    attributes = {"latency": fault.latency_ms, "jitter": fault.jitter_ms}
    try:
        proxy.add_toxic(name=name, type="latency", stream="downstream", attributes=attributes)
        listed = name in proxy.toxics()
    except API_ERRORS as error:
        raise FaultNotInjected(f"toxiproxy took no toxic for {proxy.upstream}: {error}") from error
    if not listed:
        raise FaultNotInjected(f"toxiproxy accepted the toxic for {proxy.upstream} but does not list it")


def _take_off(name: str, proxies: Iterable[Any]) -> None:
    """Remove the toxic from every proxy, also when one of them refuses. Raises FaultNotRemoved."""
    left = []
    for proxy in proxies:
        try:
            if name in proxy.toxics():
                proxy.destroy_toxic(name)
            if name in proxy.toxics():
                left.append(proxy.upstream)
        except requests.ConnectionError:
            return  # the server itself is gone, and its toxics with it
        except NotFound:
            continue  # somebody removed the proxy, and its toxics with it
        except API_ERRORS:
            left.append(proxy.upstream)
    if left:
        raise FaultNotRemoved(
            f"the latency toxic is still on for {', '.join(left)}",
            hint="remove it with: toxiproxy-cli toxic remove, or restart the toxiproxy server",
        )


def remove_proxies(server: Toxiproxy, names: list[str]) -> None:
    """Take proxies away, with their toxics; those that are gone already are no trouble. Raises FaultNotRemoved."""
    try:
        for name in names:
            proxy = server.get_proxy(name)
            if proxy is not None:
                proxy.destroy()
        left = sorted(set(names) & set(server.proxies()))
    except requests.ConnectionError:
        return  # the server itself is gone, and its proxies with it
    if left:
        raise FaultNotRemoved(f"proxies are left on the toxiproxy server: {', '.join(left)}")
