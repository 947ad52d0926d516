"""Denials that are asked for and not answered, and that come when nobody waits for them any more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.acls import Asked
from broker.client.cluster import Cluster
from failover.freezing.acl_freeze import AclFreeze, open_again
from failover.freezing.acl_rights import look
from failover.freezing.closing import Closing, standing_in_words
from failover.freezing.denials import SiteDenials
from failover.journal.log import OperationJournal
from failover.journal.values import Event, JournalEntry
from failover.observing.contact import SOURCE_LIMITS
from failover.running.result import OperationResult
from failover.running.steps import Operation
from tests.failover.freezing.test_acl_freeze import BEFORE, ID, SWITCHOVER, Locked, locked
from tests.failover.freezing.test_unfinished_closes import EVERYBODY, patient
from tests.failover.machines import machine, operate
from tests.failover.stage import TOPIC
from tests.mirror.harness import eventually


async def failed_over(there: Locked, monkeypatch: pytest.MonkeyPatch) -> OperationResult:
    """From a source that answers nobody who asks it to deny from the hand-over on, with the limits of the command."""
    real = OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
        entries = await real(self, noted)
        if any(event == Event.STARTED and detail["step"] == "hand_over" for event, detail in noted):
            there.east.unanswered = []
        return entries

    with monkeypatch.context() as patched:
        patched.setattr(OperationJournal, "record_all", record_all)
        intent = replace(SWITCHOVER, operation=Operation.FAILOVER, allow_data_loss=True, even_if_source_answers=True)
        link = there.stage.link
        async with (
            machine("farshore-test", link) as (sites,),
            Cluster(link.source, client_id="farshore-test", limits=SOURCE_LIMITS) as source,
        ):
            (result,) = await operate(intent, [replace(sites, source=source)], ID)
        return result


async def test_what_was_asked_for_and_not_answered_is_told_as_what_may_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that no ACL keeps anybody from writing, and the source closed when the request was read."""
    async with locked(tmp_path, monkeypatch) as there:
        result = await failed_over(there, monkeypatch)
        assert there.east.unanswered, "the denial was asked for"
        assert (result.verified, result.takes_writes, result.denied_principals) == (True, True, ())
        told = f"ACLs that deny to write to {TOPIC} were asked for, and may come yet"
        assert told in result.not_closed
        assert "whether they deny farshore itself to write there, too, is not known" in result.not_closed
        assert "farshore site role --site east" in result.not_closed
        assert f"farshore site thaw --site east --topic {TOPIC}" in result.not_closed


async def test_what_comes_behind_a_thaw_is_known_as_a_freezes_and_taken_back_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came without its mark, as somebody else's: no command of ours found it or took it back."""
    async with locked(tmp_path, monkeypatch) as there:
        await failed_over(there, monkeypatch)
        await open_again(there.stage.source, [TOPIC])
        assert there.east.acls == BEFORE
        there.east.land()
        assert there.east.acls > BEFORE
        found = await look(there.stage.source)
        assert (found.topics, found.operations(found.closed)) == ((TOPIC,), (ID,))
        await open_again(there.stage.source, [TOPIC])
        assert there.east.acls == BEFORE


async def test_who_is_cut_short_looks_for_a_bounded_time_whether_it_locked_itself_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the client waits for an answer: a target that was to be opened stayed closed meanwhile."""
    async with locked(tmp_path, monkeypatch) as there, patient(there.stage.source) as waiting:
        there.east.unanswered, closing = [], Closing()

        async def is_asked() -> bool:
            return bool(there.east.unanswered)

        denials = SiteDenials((EVERYBODY.principal,), is_writable=True)
        cut = asyncio.create_task(AclFreeze(waiting, "a", closing=closing).close(denials, [TOPIC]))
        await eventually(is_asked, "the denial to be asked for")
        cut.cancel()
        done, _ = await asyncio.wait([cut], timeout=60)
        assert done
        assert cut.cancelled()
        assert closing.may_come == {EVERYBODY}
        assert not closing.is_lock_out_known


async def test_how_a_site_stands_behind_a_close_that_was_cut_says_no_more_than_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as there:
        cluster = there.stage.source
        told = await standing_in_words(cluster, [TOPIC], "it was late", Closing())
        assert told == "no ACL of a freeze keeps clients from writing at east (it was late)", "none was asked for"
        asked = Closing(Asked(Counter([EVERYBODY])), is_lock_out_known=False)
        told = await standing_in_words(cluster, [TOPIC], "it was late", asked)
        assert told.startswith(
            "no ACL of a freeze keeps clients from writing at east yet (it was late); ACLs that deny"
        )
        assert "whether they deny farshore itself to write there, too, is not known" in told
        await AclFreeze(cluster, "a").close(SiteDenials((EVERYBODY.principal,)), [TOPIC])
        told = await standing_in_words(cluster, [TOPIC], "it was late", Closing(Asked(Counter([EVERYBODY]))))
        assert told.startswith(f"ACLs deny clients of east to write to {TOPIC} (it was late); ")
        assert "not known" not in told
        assert "may come yet" not in told
