"""The journal's topic does not grow for ever: what nobody needs is taken back, and nothing that somebody does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from failover.errors import OperationTakenUp
from failover.journal.log import OperationJournal, claim, load_operations
from failover.journal.standing import to_forget
from failover.journal.values import GENESIS_HASH, Event, JournalEntry, Lease, OperationLog, read_operations
from failover.planning.intent import Intent
from failover.planning.links import mark_interrupted
from failover.running.steps import Operation
from tests.broker.running import running_broker
from tests.failover.machines import HEIR, machine, operate, quick
from tests.failover.stage import mirrored, two_sites
from tests.mirror.harness import accept_all

SITES = ("east", "west")
END = {"verified": True, "has_findings": False, "results": []}


def log(name: str, *links: str, ended: bool = True, fenced: bool = False, source: str = "east") -> OperationLog:
    intent = Intent(Operation.SWITCHOVER, links or ("east-west",), source, "west")
    told: list[tuple[str, Mapping[str, object]]] = [(Event.PLANNED, {"intent": intent.document(), "who": "ann"})]
    told += [(Event.STARTED, {"step": "fence"})] if fenced else []
    told += [(Event.GIVEN_UP, {})] if ended else []
    entries = [JournalEntry(at, 1, name, event, detail, GENESIS_HASH) for at, (event, detail) in enumerate(told)]
    return OperationLog(name, tuple(entries))


def forgotten(*logs: OperationLog, kept: int = 2) -> list[str]:
    return sorted(found.operation_id for found in to_forget({one.operation_id: one for one in logs}, SITES, kept))


def test_of_each_link_the_newest_stay() -> None:
    others = [log(f"other-{n}", "other") for n in range(2)]
    assert forgotten(log("1"), *others, log("2"), log("3")) == ["1"]
    assert forgotten(*(log(str(n)) for n in range(5)), *others, kept=1) == ["0", "1", "2", "3", "other-0"]
    both = log("both", "east-west", "other")
    assert forgotten(both, log("2"), log("3")) == [], "of the other link it is the newest"
    assert forgotten(both, log("2"), log("3"), *others) == ["both"]


def test_a_failback_is_no_fence_that_takes_anothers_place() -> None:
    """The link's state names the failover, and which groups went the failback reads there."""
    intent = Intent(Operation.FAILBACK, ("east-west",), "east", "west")
    backs = []
    for n in range(3):
        told: list[tuple[str, Mapping[str, object]]] = [(Event.PLANNED, {"intent": intent.document(), "who": "ann"})]
        told += [(Event.STARTED, {"step": "carry"}), (Event.ABORTED, {})]
        entries = [JournalEntry(at, 1, f"b{n}", event, one, GENESIS_HASH) for at, (event, one) in enumerate(told)]
        backs.append(OperationLog(f"b{n}", tuple(entries)))
    assert forgotten(log("0", fenced=True), *backs) == ["b0"]


@pytest.mark.parametrize(
    "needed",
    [
        pytest.param(log("0", ended=False), id="open"),
        pytest.param(log("0", source="south"), id="between other sites"),
        pytest.param(log("0", fenced=True), id="the last that fenced the link: the link's state names it"),
        pytest.param(OperationLog("0", log("0").entries, damage="entry 3 is missing"), id="damaged"),
        pytest.param(OperationLog("0", (), damage="entry 0 is missing"), id="damaged from the beginning"),
    ],
)
def test_what_somebody_needs_stays_however_old_it_is(needed: OperationLog) -> None:
    assert forgotten(needed, *(log(str(n)) for n in range(1, 9)), kept=8) == []
    assert forgotten(log("old"), needed, *(log(str(n)) for n in range(1, 9)), kept=8) == ["old"]


def test_one_that_fenced_a_link_goes_when_another_one_has() -> None:
    assert forgotten(log("0", fenced=True), log("1", fenced=True), log("2"), log("3")) == ["0"]


def test_a_key_that_was_taken_back_is_none_of_its_operation_any_more() -> None:
    entry = log("one").entries[0]
    lease = Lease("ann", 1).record("one")
    records = [*entry.records(), lease]
    (found,) = read_operations(records).values()
    assert sorted(found.keys) == sorted(key for key, _ in records)
    assert read_operations([*records, *((key, None) for key, _ in records)]) == {}


async def test_what_is_forgotten_is_gone_at_the_target_and_the_others_stand(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, Cluster(Site("west", address)) as west:
        for name in ("one", "two", "three"):
            journal = await _begun(west, name)
            await journal.record(Event.STARTED, {"step": "drain", "much": "".join(map(chr, range(32, 5000))) * 200})
            await journal.record(Event.GIVEN_UP, {})
        before = await load_operations(west)
        assert len(before["one"].keys) > 4, "an entry is in parts"
        await journal.forget([before["one"], before["two"]])
        await journal.record(Event.CUT_SHORT, {"and": "it writes on"})
        after = await load_operations(west)
        assert list(after) == ["three"]
        assert after["three"].whole().entries[: len(before["three"].entries)] == before["three"].entries
        overtaken, _ = journal, await _begun(west, "four")
        with pytest.raises(OperationTakenUp):
            await overtaken.forget([after["three"]])
        assert list(await load_operations(west)) == ["three", "four"]


async def _begun(west: Cluster, name: str) -> OperationJournal:
    writer, _ = await claim(west, SITES, lambda _: None)
    journal = OperationJournal(west, name, "ann", writer, SITES)
    intent = Intent(Operation.SWITCHOVER, ("east-west",), *SITES)
    await journal.record(Event.PLANNED, {"intent": intent.document(), "who": "ann"})
    return journal


async def test_operations_forget_those_before_them_and_an_interrupted_one_is_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    monkeypatch.setattr("failover.running.taking_up.OPERATIONS_KEPT", 1)
    async with two_sites(tmp_path) as stage, mirrored(stage):
        names = [f"move-{n}" for n in range(4)]
        for name in names:
            intent = Intent(Operation.FAILOVER, (), *SITES, allow_data_loss=True, even_if_source_answers=True)
            async with machine(HEIR, stage.link) as sites:
                (result,) = await operate(intent, sites, name)
            assert result.verified, result.differences
            snapshot = await mark_interrupted(await stage.sites.look(), stage.sites)
            assert (snapshot.operation_id, snapshot.interrupted) == (name, False)
            kept: Sequence[str] = list(await load_operations(stage.target))
            assert kept == names[max(0, names.index(name) - 1) : names.index(name) + 1]
            await accept_all(stage.link, stage.target, f"resume-{name}")
