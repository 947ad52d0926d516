"""Two brokers of ours in this process that write down which rights a command asks for: one run says all that it needs.

They allow the user of the commands what he is given, without a process or an ACL. Who comes without a login, as the
tests and their mirrors do, may do everything.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner, Result

from broker.access.acls import AclBinding, Acls
from broker.access.authorizer import EVERYTHING, Authorizer, NotAuthorized, Rights
from broker.access.users import new_credentials, write_users
from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import CLUSTER_NAME, AclOperation, AclPattern, AclPermission, AclResource
from deploy.cli.root import cli
from deploy.config import load
from deploy.rights import rights_of
from mirror.link import Link
from tests.broker.running import running_server
from tests.deploy.cli.rights_stage import LIMITED, Right, printed_rights
from tests.interop.locked import PASSWORD
from tests.ports import free_port

WHO = f"User:{LIMITED}"
T = TypeVar("T")


class RecordingAuthorizer(Authorizer):
    """Of one site. `used`: what was asked for and allowed, `refused`: and not. `others`: ACLs of somebody else."""

    def __init__(self, site: str) -> None:
        super().__init__((), allows_without_acls=False, clock=SystemClock())
        self.site = site
        self.others: tuple[AclBinding, ...] = ()
        self.used: set[Right] = set()
        self.refused: set[Right] = set()

    def give(self, rights: Iterable[Right]) -> None:
        """These alone, and begin to write down."""
        self.acls = Acls.of([*(binding_of(right, WHO) for right in rights if right.site == self.site), *self.others])
        self.used, self.refused = set(), set()

    def rights(self, principal: str, host: str) -> Rights:
        return _Recorded(self, super().rights(principal, host)) if principal == WHO else EVERYTHING


def binding_of(right: Right, principal: str) -> AclBinding:
    return AclBinding(right.resource, right.name, right.pattern, principal, "*", right.operation, AclPermission.ALLOW)


@dataclass(frozen=True)
class _Recorded:
    authorizer: RecordingAuthorizer
    inner: Rights
    is_limited: bool = True

    def may(
        self, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME, *, quietly: bool = False
    ) -> bool:
        is_allowed = self.inner.may(operation, kind, name, quietly=True)
        asked = Right(self.authorizer.site, operation, kind, name, AclPattern.LITERAL)
        if is_allowed:
            self.authorizer.used.add(asked)
        elif not quietly:
            self.authorizer.refused.add(asked)
        return is_allowed

    def may_somewhere(self, operation: AclOperation, kind: AclResource) -> bool:
        return self.inner.may_somewhere(operation, kind)

    def operations(self, kind: AclResource, name: str = CLUSTER_NAME) -> int:
        return self.inner.operations(kind, name)

    def require(self, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME) -> None:
        if not self.may(operation, kind, name):
            code = ErrorCode[f"{kind.name}_AUTHORIZATION_FAILED"]
            raise NotAuthorized(code.description, error_code=code)


def is_of(asked: Right, right: Right) -> bool:
    """Whether it is the right that was asked for."""
    is_named = asked.name.startswith(right.name) if right.pattern is AclPattern.PREFIXED else asked.name == right.name
    return is_named and asked[:3] == right[:3]


@dataclass
class RecordedSites:
    """Runs `farshore` as who has what he is given. `open`: the addresses for who may do everything."""

    folder: Path
    loop: asyncio.AbstractEventLoop
    open: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    authorizers: dict[str, RecordingAuthorizer] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    """As who may do everything has them."""

    @property
    def config(self) -> Path:
        return self.folder / "farshore.toml"

    @property
    def open_config(self) -> Path:
        return self.folder / "open.toml"

    def declare(self, links: str) -> None:
        """The sites, and these tables of links."""
        (self.folder / "password").write_text(PASSWORD)
        sites = "".join(
            f'[sites.{name}]\nbootstrap_servers = "{self.words[name]}"\n[sites.{name}.security]\n'
            f'protocol = "SASL_PLAINTEXT"\nmechanism = "PLAIN"\nusername = "{LIMITED}"\npassword_file = "password"\n'
            for name in ("east", "west")
        )
        self.config.write_text(sites + links)
        open_sites = "".join(f'[sites.{name}]\nbootstrap_servers = "{at}"\n' for name, at in self.open.items())
        self.open_config.write_text(open_sites + links)
        self.links = {link.name: link for link in load(self.open_config).links()}

    def printed(self, link: str, command: str) -> list[Right]:
        found = rights_of(load(self.config).link(link), [command], {"east": WHO, "west": WHO})
        return [right for one in found for right in printed_rights(one.site, one.command)]

    def give(self, rights: Iterable[Right]) -> None:
        given = list(rights)
        for authorizer in self.authorizers.values():
            authorizer.give(given)

    def run(self, line: str, *, as_super_user: bool = False) -> Result:
        config = self.open_config if as_super_user else self.config
        result = CliRunner().invoke(cli, ["--config", str(config), *line.split()])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    @property
    def used(self) -> set[Right]:
        return {right for each in self.authorizers.values() for right in each.used}

    @property
    def refused(self) -> set[Right]:
        return {right for each in self.authorizers.values() for right in each.refused}

    def at(self, site: str, work: Callable[[Cluster], Awaitable[T]]) -> T:
        """As who may do everything."""

        async def run() -> T:
            async with Cluster(Site(site, self.open[site])) as cluster:
                return await work(cluster)

        return self.do(run())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Beside the brokers, with a command or without."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


@contextmanager
def recorded_sites(folder: Path) -> Iterator[RecordedSites]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    sites, stack = RecordedSites(folder, loop), AsyncExitStack()
    try:
        write_users(folder / "users.json", {LIMITED: new_credentials(PASSWORD)})
        for name in ("east", "west"):
            sites.do(_start(sites, stack, name))
        yield sites
    finally:
        sites.do(stack.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _start(sites: RecordedSites, stack: AsyncExitStack, name: str) -> None:
    ports = {listener: free_port() for listener in ("OPEN", "WORDS")}
    server = await stack.enter_async_context(
        running_server(
            sites.folder / name,
            listeners=tuple(f"{listener}://127.0.0.1:{port}" for listener, port in ports.items()),
            listener_security_protocol_map={"OPEN": "PLAINTEXT", "WORDS": "SASL_PLAINTEXT"},
            sasl_enabled_mechanisms=("PLAIN",),
            sasl_users_file=sites.folder / "users.json",
            authorizer_enable=True,
            super_users=("User:ANONYMOUS",),
        )
    )
    server.broker.acls.authorizer = sites.authorizers[name] = RecordingAuthorizer(name)
    sites.open[name], sites.words[name] = (f"127.0.0.1:{port}" for port in ports.values())
