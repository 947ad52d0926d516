"""A broker of the source takes connections and says nothing: what the others can take is denied, let in, and told."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.acl_bindings import Acl
from broker.client.acls import DenialsNotEverywhere, WriteDenial
from broker.client.cluster import Cluster
from broker.wire.site_role import SiteRole
from deploy.cli.site_denials import change_denials
from deploy.cli.site_rows import row_by_denials
from failover.errors import LockedOut
from failover.freezing.acl_freeze import AclFreeze, open_again
from failover.freezing.acl_rights import look
from failover.freezing.denials import mark_of
from failover.journal.log import OperationJournal
from failover.journal.values import Event, JournalEntry
from failover.running.result import OperationResult
from failover.running.steps import Operation
from tests.failover.acl_site import OWN
from tests.failover.freezing.test_acl_freeze import BEFORE, ID, Locked, locked, switch
from tests.failover.freezing.test_unfinished_closes import DENIALS, EVERYBODY, closed_by, patient, refusing
from tests.failover.stage import TOPIC


@contextmanager
def silent(there: Locked) -> Iterator[int]:
    """A broker of east by its port: connections are taken, and nothing is answered."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen(64)
        there.east.dead_ports = (held.getsockname()[1],)
        try:
            yield there.east.dead_ports[0]
        finally:
            there.east.dead_ports = ()


@asynccontextmanager
async def impatient(cluster: Cluster) -> AsyncIterator[Cluster]:
    limits = replace(cluster.limits, retry_timeout_ms=1_000, partition_patience_ms=1_000)
    async with Cluster(cluster.site, client_id="farshore-test", limits=limits) as other:
        yield other


async def test_it_is_denied_through_a_broker_that_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every broker was waited for before anything was denied, longer than a failover waits."""
    async with locked(tmp_path, monkeypatch) as there:
        with silent(there):
            async with patient(there.stage.source) as waiting, impatient(there.stage.source) as asked:
                await closed_by(waiting, asked, "a")


async def test_who_did_not_confirm_is_named_and_a_thaw_lets_in_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as there:
        with silent(there) as port:
            async with impatient(there.stage.source) as cluster:
                with pytest.raises(DenialsNotEverywhere, match=str(port)):
                    await AclFreeze(cluster, "a").close(DENIALS, [TOPIC])
                row = row_by_denials(cluster.site, await look(cluster))
                assert (row.role, row.takes_writes, row.differing, row.topics) == ("standby", None, (port,), (TOPIC,))
                with pytest.raises(DenialsNotEverywhere, match=f"not said by broker {port}$"):
                    await open_again(cluster, [TOPIC])
        assert there.east.acls == BEFORE


async def failed_over(
    there: Locked, monkeypatch: pytest.MonkeyPatch, *, is_silent: bool = True
) -> tuple[OperationResult, int]:
    """From a source of which a broker falls silent when the groups are moved, or (not `is_silent`) refuses connections
    -> how it ended, and which broker.
    """
    real = OperationJournal.record_all
    with silent(there) if is_silent else refusing() as port:
        there.east.dead_ports = ()

        async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
            entries = await real(self, noted)
            if any(event == Event.STARTED and detail["step"] == "hand_over" for event, detail in noted):
                there.east.dead_ports = (port,)
            if any(event == Event.STARTED and detail["step"] == "verify" for event, detail in noted):
                there.east.dead_ports = ()
            return entries

        monkeypatch.setattr(OperationJournal, "record_all", record_all)
        result = await switch(
            there.stage.link, operation=Operation.FAILOVER, allow_data_loss=True, even_if_source_answers=True
        )
        return result, port


async def test_a_failover_denies_and_says_which_broker_did_not_confirm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as there:
        there.west.acls = {
            Acl(2, TOPIC, 3, one, "*", 4, 2) for one in ("User:*", "User:farshore-freeze/earlier/User:*")
        }
        result, port = await failed_over(there, monkeypatch)
        made = {acl.principal for acl in there.east.acls - BEFORE}
        assert made == {"User:*", f"User:farshore-freeze/{ID}/User:*"}
        assert there.west.acls == set(), "the target is opened"
        assert (result.verified, result.takes_writes, result.denied_principals) == (True, True, ())
        assert f"ACLs deny clients of east to write to {TOPIC}, and brokers {port} have not said" in result.not_closed


@pytest.mark.parametrize("is_silent", [True, False])
async def test_a_failover_that_is_cut_beside_it_does_not_leave_farshore_locked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_silent: bool
) -> None:
    """The look whether it is came last, behind the wait that was cut, and not at all."""
    async with locked(tmp_path, monkeypatch) as there:
        there.east.super_users = frozenset()
        result, _ = await failed_over(there, monkeypatch, is_silent=is_silent)
        assert there.east.acls == BEFORE
        assert (result.verified, result.takes_writes) == (True, True)
        assert "what User:* is denied at east is denied to farshore" in result.not_closed
        assert "taken back" in result.not_closed


async def test_a_close_by_hand_beside_it_does_not_leave_farshore_locked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as there:
        there.east.super_users = frozenset()
        with silent(there):
            async with impatient(there.stage.source) as cluster:
                with pytest.raises(LockedOut, match="taken back") as told:
                    await change_denials(cluster, SiteRole.STANDBY, [TOPIC], lambda _: None)
        assert "farshore site thaw --site east --topic " in told.value.hint
        assert there.east.acls == BEFORE


async def test_who_is_cut_short_behind_the_denial_looks_whether_it_locked_itself_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is silent: another freeze is being taken back, by one who died."""
    async with locked(tmp_path, monkeypatch) as there:
        there.east.super_users = frozenset()
        left = [EVERYBODY, mark_of(EVERYBODY, "died"), WriteDenial(TOPIC, "User:farshore-thaw/died/User:*")]
        async with impatient(there.stage.source) as cluster:
            real = there.east.acls
            there.east.acls = real | {Acl(2, one.topic, 3, one.principal, "*", 4, 2) for one in left[1:]}
            with pytest.raises(LockedOut):
                await change_denials(cluster, SiteRole.STANDBY, [TOPIC], lambda _: None)
            found = await look(cluster)
        assert EVERYBODY not in found.there
        assert OWN not in there.east.super_users
