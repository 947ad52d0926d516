"""A close by ACLs that does not come to its end: what could be denied is, and nothing false is said of the rest."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.acls import WriteDenial, create_denials, known_denials
from broker.client.cluster import Cluster
from broker.wire.site_role import SiteRole
from deploy.cli.site_roles import changed
from deploy.cli.site_rows import row_of
from failover.freezing.acl_freeze import AclFreeze
from failover.freezing.denials import Denials, SiteDenials, leaving_mark_of, mark_of, read_denials
from tests.failover.freezing.test_acl_freeze import BEFORE, locked
from tests.failover.stage import TOPIC
from tests.mirror.harness import eventually

EVERYBODY = WriteDenial(TOPIC, "User:*")
DENIALS = SiteDenials((EVERYBODY.principal,))
HOUR_MS = 3_600_000


@contextmanager
def refusing() -> Iterator[int]:
    """A port that refuses connections, and is nobody else's meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@asynccontextmanager
async def patient(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Who waits for an answer longer than any test does."""
    limits = replace(cluster.limits, connect_timeout_ms=HOUR_MS, request_timeout_ms=HOUR_MS, retry_timeout_ms=HOUR_MS)
    async with Cluster(cluster.site, client_id="farshore-test", limits=limits) as other:
        yield other


async def denied(cluster: Cluster) -> Denials:
    return read_denials(await known_denials(cluster))


async def closed_by(waiting: Cluster, asked: Cluster, operation_id: str) -> None:
    """It begins to close, and is cut short when the denial is there: by then its own mark is."""

    async def is_denied() -> bool:
        found = await denied(asked)
        return EVERYBODY in found.there and operation_id in found.marks.get(EVERYBODY, ())

    closing = asyncio.create_task(AclFreeze(waiting, operation_id).close(DENIALS, [TOPIC]))
    try:
        await eventually(is_denied, "the denial to be made")
        assert not closing.done(), "not every broker, or everybody, has said that it is closed"
    finally:
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing


async def test_a_broker_that_refuses_connections_keeps_no_other_one_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it had seen the marks no denial was made, and a failover, which waits five seconds, made none at all."""
    async with locked(tmp_path, monkeypatch) as there, patient(there.stage.source) as waiting:
        with refusing() as port:
            there.east.dead_ports = (port,)
            await closed_by(waiting, there.stage.source, "a")


async def test_a_thaw_that_died_keeps_nobody_from_denying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was waited for before the denial was made: a failover's five seconds were over."""
    async with locked(tmp_path, monkeypatch) as there, patient(there.stage.source) as waiting:
        source = there.stage.source
        await create_denials(source, {mark_of(EVERYBODY, "died"), leaving_mark_of(EVERYBODY, "died")})
        await closed_by(waiting, source, "a")


async def test_what_a_cut_thaw_left_is_shown_and_taken_back_where_the_file_says_nothing_of_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its operation may be long forgotten: the site was told as one that refuses nobody, and no command opened it."""
    async with locked(tmp_path, monkeypatch) as there:
        left = {EVERYBODY, mark_of(EVERYBODY, "forgotten"), leaving_mark_of(EVERYBODY, "forgotten")}
        await create_denials(there.stage.source, left)
        site = replace(there.stage.source.site, freeze_principals=())
        row = await row_of(site)
        assert (row.role, row.takes_writes, row.topics) == ("standby", False, (TOPIC,))
        assert row.reason.startswith("ACLs of forgotten; forgotten began to take the freeze back")
        row = await changed(site, SiteRole.ACTIVE, "", dry_run=True, yes=True)
        assert (row.role, row.takes_writes, row.topics) == ("active", True, ())
        assert there.east.acls > BEFORE
        assert (await changed(site, SiteRole.ACTIVE, "", dry_run=False, yes=True)).role == "active"
        assert there.east.acls == BEFORE
        row = await row_of(site)
        assert (row.role, row.takes_writes) == ("none", None)
