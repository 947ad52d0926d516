"""The way back as an operator takes it, held against both logs by content; killed at any step it is begun again."""

from __future__ import annotations

import asyncio
import json
import random
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import read_records
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.records import Record
from deploy.cli.terminal import ExitCode
from mirror.link import Link
from mirror.offsets.entries import RunState
from mirror.offsets.operations import promote_link
from mirror.offsets.state import read_entries
from tests.deploy.cli.test_stranded import WHERE, Operator
from tests.deploy.test_readme import environment
from tests.forking import ForkedProcess, start_farshore
from tests.interop.servers import FarshoreBroker, wait_until
from tests.mirror.harness import (
    contents,
    eventually,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)
from tests.mirror.transactions import begin

SHARED, STRANDED, NEWER = 20, 7, 9
ANOTHER = '[[links]]\nname = "{name}"\nsource = "east"\ntarget = "west"\ntopics = ["{name}"]\ntopic_names = "same"\n'
GROUPS = {"behind": (4, 6), "old": (SHARED + 5, 11), "current": (SHARED, -2), "done": (3, 0)}
"""Per group its offset at east when that was lost, and the later one at west; from the end if it is not above 0."""


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        yield Operator(tmp_path, east.bootstrap, west.bootstrap)


async def lose_and_go_on(operator: Operator) -> None:
    """East is lost with a tail; groups and producers go on at west."""
    link = operator.link
    async with Cluster(link.source) as east, Cluster(link.target) as west:
        await make_topic(east, WHERE.topic)
        await write(east, WHERE, some_records(0, SHARED))
        async with running(link):
            await wait_for_records(west, WHERE, SHARED)
        await promote_link(link, west, "failover-1")
        await write(east, WHERE, some_records(1_000, STRANDED))
        await write(west, WHERE, some_records(2_000, NEWER))
        end = (await log_end_offsets(west, [WHERE]))[WHERE]
        for group, (at_east, at_west) in GROUPS.items():
            await commit_offsets(east, group, {WHERE: CommittedOffset(at_east)})
            await commit_offsets(west, group, {WHERE: CommittedOffset(at_west if at_west > 0 else end + at_west)})


async def next_records(cluster: Cluster) -> dict[str, tuple[object, ...]]:
    """By content what each group reads next; () at the end."""
    found: dict[str, tuple[object, ...]] = {}
    end = (await log_end_offsets(cluster, [WHERE]))[WHERE]
    for group in GROUPS:
        offset = (await committed_offsets(cluster, group))[WHERE].offset
        found[group] = next(iter([tuple(r)[1:] async for r in read_records(cluster, WHERE, offset, end)]), ())
    return found


@contextmanager
def command(operator: Operator, *words: str) -> Iterator[ForkedProcess]:
    """`farshore ...` as a process of its own; killed at the end."""
    log = operator.folder / f"{words[0]}.log"
    process = start_farshore(["--config", str(operator.config), *words], operator.folder, log, environment())
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def check_is_back(operator: Operator, at_west: list[tuple[object, ...]], expected: dict[str, object]) -> None:
    link = operator.link
    async with Cluster(link.source) as east, Cluster(link.target) as west:
        stranded = contents(some_records(1_000, STRANDED))
        assert contents(await read_all(east, WHERE)) == [*at_west[:SHARED], *stranded, *at_west[SHARED:]]
        assert contents(await read_all(west, WHERE)) == at_west
        assert await next_records(east) == expected
        run = (await read_entries(link, west)).run
        assert run is not None
        assert run.state is RunState.RUNNING
        await write(east, WHERE, some_records(5_000, 3))
        async with running(link):
            there = await wait_for_records(west, WHERE, len(at_west) + 3)
            assert contents(there) == [*at_west, *contents(some_records(5_000, 3))], "the tail is not carried"
            await eventually(lambda: _moved(west), "the groups to follow")


async def _moved(west: Cluster) -> bool:
    return len([group for group in GROUPS if WHERE in await committed_offsets(west, group)]) == len(GROUPS)


async def look_at_west(link: Link) -> tuple[list[tuple[object, ...]], dict[str, object]]:
    async with Cluster(link.target) as west:
        return contents(await read_all(west, WHERE)), dict(await next_records(west))


def wait_for_worker(operator: Operator) -> None:
    asyncio.run(eventually(lambda: _is_owned(operator.back), "the worker of the link back"))


async def _has_all(operator: Operator) -> None:
    async with Cluster(operator.link.source) as east:  # before, groups' places are unknown in a plan, and not later
        await wait_for_records(east, WHERE, SHARED + STRANDED + NEWER)


async def _is_owned(back: Link) -> bool:
    async with Cluster(back.target) as east:
        owner = (await read_entries(back, east)).owner
        return owner is not None and owner.is_worker


def test_back_with_everything_and_each_group_at_its_very_record(operator: Operator) -> None:
    come_back(operator)


def come_back(operator: Operator) -> None:
    """Lose east, go on at west, come back by the command."""
    asyncio.run(lose_and_go_on(operator))
    at_west, expected = asyncio.run(look_at_west(operator.link))
    silent = operator.run("failback --link east-west --yes", ExitCode.REFUSED).stderr
    assert "farshore mirror run --link west-east" in " ".join(silent.split())
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        plan = json.loads(operator.run("failback --link east-west --dry-run -o json").stdout)
        assert plan["steps"] == ["export", "leave", "carry", "set_groups", "switch_over", "resume"]
        assert (plan["stranded_records"], plan["refusals"], len(plan["group_totals"])) == (STRANDED, [], len(GROUPS))
        through = {(one["group"], one["records"]) for one in plan["reads_tail"]}
        assert through == {("behind", STRANDED), ("old", STRANDED)}, "they have not read all that both sites have"
        saved = operator.folder / "saved"
        done = operator.run(f"failback --link east-west --export-to {saved} --yes -o json")
        result = json.loads(done.stdout)
        assert result["switchover"]["verified"] is True
        operation_id = result["switchover"]["operation_id"]
        assert done.stderr.splitlines()[-1] == f"  farshore operation show {operation_id}"
        start, run = result["next"]
        assert start["what"].startswith("start producers and consumers at east: 127.0.0.1:")
        assert run["what"].startswith("no worker runs link east-west")
        assert (result["link_is_run"], run["command"]) == (False, "farshore mirror run --link east-west")
        assert {one["group"] for one in result["groups_set_back"]} == {"old"}
        assert json.loads((saved / "manifest.json").read_text())["ranges"][0]["records"] == STRANDED
    asyncio.run(check_is_back(operator, at_west, expected))
    assert "runs again" in operator.run("failback --link east-west --yes", ExitCode.REFUSED).stderr


def test_a_dry_run_says_in_words_what_speaks_against_it_and_which_link_is_missing(operator: Operator) -> None:
    file, links = operator.config.read_text().split("[[links]]", 1)
    there = links.split("[[links]]")[0]
    operator.config.write_text(f"{file}[[links]]{there}")
    asyncio.run(lose_and_go_on(operator))
    operator.run("link resume --link east-west --stranded leave --yes")
    plan = operator.run("failback --link east-west --dry-run", ExitCode.REFUSED)
    assert plan.stdout.endswith(" as was decided before\nrefused\n"), "it was the plan's raw fields"
    said = plan.stderr
    assert "refused: link east-west was not moved away from east, or it runs again" in said
    assert "refused: no link from west to east is declared" in said
    assert "hint: a failback is for after a failover" in said
    hint = f"hint: add it to {operator.config}, and run it: farshore mirror run --link west-east"
    assert hint in " ".join(said.split())
    assert tomllib.loads(said[said.index("[[links]]") :])["links"][0]["source"] == "west"


def test_of_a_transaction_that_is_open_it_is_said_where_and_how_it_ends(operator: Operator) -> None:
    """It was refused without a word of where; a switchover said it."""
    asyncio.run(lose_and_go_on(operator))
    asyncio.run(leave_open(operator.link.source))
    refused = operator.run("failback --link east-west --dry-run", ExitCode.REFUSED).stderr
    said, start = " ".join(refused.split()), SHARED + STRANDED
    assert f"a transaction is open in what only east has: flights-0 from offset {start} on" in said
    tool = f"kafka-transactions.sh --bootstrap-server {operator.link.source.bootstrap_servers}"
    assert f"{tool} abort --topic flights --partition 0 --start-offset {start}" in said


async def leave_open(site: Site) -> None:
    """Its producer is gone, and a minute is its time-out."""
    async with Cluster(site) as cluster:
        await begin(cluster, WHERE)


def test_killed_anywhere_and_begun_again_it_ends_the_same(operator: Operator) -> None:
    chance = random.Random(7)
    asyncio.run(lose_and_go_on(operator))
    at_west, expected = asyncio.run(look_at_west(operator.link))
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        for _ in range(4):
            with command(operator, "failback", "--link", "east-west", "--yes") as process:
                until = time.monotonic() + chance.uniform(0.5, 6.0)
                while process.poll() is None and time.monotonic() < until:
                    time.sleep(0.02)
            if process.returncode == ExitCode.DONE:
                break
        else:
            end(operator)
    asyncio.run(check_is_back(operator, at_west, expected))


def end(operator: Operator) -> None:
    """Begin it a last time; one that had come to its end before it was killed has nothing left to do, and says so."""
    if json.loads(operator.run("operation list --open -o json").stdout)["items"]:
        operator.run("failback --link east-west --yes")
    elif asyncio.run(state_of(operator.link)) is RunState.RUNNING:
        refused = operator.run("failback --link east-west --yes", ExitCode.REFUSED)
        assert "or it runs again" in " ".join(refused.stderr.split())
    else:
        operator.run("failback --link east-west --yes")


def test_a_group_that_reads_at_the_other_site_is_refused_with_the_plan_and_begun_again_it_goes_on(
    operator: Operator,
) -> None:
    asyncio.run(lose_and_go_on(operator))
    at_west, _ = asyncio.run(look_at_west(operator.link))
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        with reading_at_west(operator):
            for refused in (
                operator.run("failback --link east-west --dry-run -o json", ExitCode.REFUSED),
                operator.run("failback --link east-west --yes -o json", ExitCode.REFUSED),
            ):
                assert json.loads(refused.stdout)["refusals"] == ["groups_in_use"]
            said = " ".join(refused.stderr.split())
            assert "the group reader still reads at west: the switchover along west-east would be refused" in said
            assert "Nothing was changed" in said
        assert json.loads(operator.run("operation list -o json").stdout)["items"] == []
        with command(operator, "mirror", "run", "--link", "east-west"):
            done = come_back_with_others(operator)
        assert done["steps_done"] == ["export", "leave", "carry", "set_groups", "switch_over", "resume"]
        assert (done["stranded_records"], done["left_records"]) == (STRANDED, 0)
        assert (done["link_is_run"], [step["command"] for step in done["next"]]) == (True, [""])
        assert done["switchover"]["verified"] is True
    asyncio.run(check_logs(operator, at_west))


def test_a_folder_that_is_not_empty_is_a_wrong_use_and_begins_nothing(operator: Operator) -> None:
    """The failback was begun, and cut short by it, and kept both links."""
    asyncio.run(lose_and_go_on(operator))
    (folder := operator.folder / "mine").mkdir()
    (folder / "notes").write_text("something else")
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        line = f"failback --link east-west --export-to {folder}"
        for option in ("--dry-run", "--yes"):
            refused = " ".join(operator.run(f"{line} {option}", ExitCode.USAGE).stderr.split())
            assert "is not empty, and is no export; nothing was changed" in refused
    assert json.loads(operator.run("operation list -o json").stdout)["items"] == []


def come_back_with_others(operator: Operator) -> dict[str, Any]:
    """By the command of the site, beside one link that is refused and one that was never moved -> of the one."""
    with operator.config.open("a") as file:
        file.writelines(ANOTHER.format(name=name) for name in ("hotels", "trains"))
    asyncio.run(promote_alone(operator, "hotels"))
    line = "failback --from east --to west"
    planned = json.loads(operator.run(f"{line} --dry-run -o json", ExitCode.REFUSED).stdout)
    assert [one["outcome"] for one in planned["links"]] == ["comes_back", "refused", "not_away"]
    came = json.loads(operator.run(f"{line} --reason repaired --yes -o json", ExitCode.REFUSED).stdout)
    assert '"reason": "repaired"' in operator.run("operation list -o json").stdout
    by_link = {one["link"]: one for one in came["links"]}
    codes = {name: (one["outcome"], one["exit_code"]) for name, one in by_link.items()}
    assert codes == {"east-west": ("back", 0), "hotels": ("refused", 3), "trains": ("not_away", 0)}
    assert "is declared that brings back what hotels mirrors" in by_link["hotels"]["error"]
    assert came["next"][-1]["what"].startswith("not back yet: hotels;")
    assert came["next"][-1]["command"] == f"farshore {line}"
    assert "hotels mirrors. Nothing" in " ".join(operator.run(f"{line} --yes", ExitCode.REFUSED).stderr.split())
    return {**by_link["east-west"], "next": came["next"][:-1]}


async def promote_alone(operator: Operator, name: str) -> None:
    """Of a link that has mirrored nothing."""
    link = replace(operator.link, name=name, topics=(name,), groups=(), reverse_links=())
    async with Cluster(link.target) as west:
        await promote_link(link, west, f"failover-{name}")


@contextmanager
def reading_at_west(operator: Operator) -> Iterator[None]:
    """A member of a group that never committed."""
    settings = {"bootstrap.servers": operator.link.target.bootstrap_servers, "group.id": "reader"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([WHERE.topic])
        wait_until(lambda: consumer.poll(0.2) is not None, 120.0, "the group's first record")
        yield
    finally:
        consumer.close()


async def check_logs(operator: Operator, at_west: list[tuple[object, ...]]) -> None:
    async with Cluster(operator.link.source) as east:
        stranded = contents(some_records(1_000, STRANDED))
        assert contents(await read_all(east, WHERE)) == [*at_west[:SHARED], *stranded, *at_west[SHARED:]]


async def lose_both_in_turn(operator: Operator) -> None:
    """West is active and lost, then east: each was promoted, and each has records that the other one lacks."""
    there, back = operator.link, operator.back
    async with Cluster(there.source) as east, Cluster(there.target) as west:
        await make_topic(east, WHERE.topic)
        await write(east, WHERE, some_records(0, SHARED))
        async with running(there), running(back):
            await wait_for_records(west, WHERE, SHARED)
            await write(west, WHERE, some_records(3_000, 2))
            await wait_for_records(east, WHERE, SHARED + 2)
        await promote_link(back, east, "failover-1")
        await write(west, WHERE, some_records(40_000, 3))
        await write(east, WHERE, some_records(50_000, 3))
        async with running(there):
            await wait_for_records(west, WHERE, SHARED + 2 + 3 + 3)
        await promote_link(there, west, "failover-2")
        await write(west, WHERE, some_records(60_000, 1))


def test_what_an_earlier_failover_left_at_the_other_site_is_asked_for_before_the_link_back_runs(
    operator: Operator,
) -> None:
    """It came to the source behind newer records, and nobody had been asked."""
    asyncio.run(lose_both_in_turn(operator))
    with command(operator, "mirror", "run", "--link", "west-east"):
        plan = json.loads(operator.run("failback --link east-west --dry-run -o json", ExitCode.REFUSED).stdout)
        assert plan["refusals"] == ["back_tail_undecided"]
        assert [tail["records"] for tail in plan["back_tails"]] == [3]
        refused = operator.run("failback --link east-west --yes", ExitCode.REFUSED)
        assert "west alone has 3 records of an earlier failover along link west-east" in " ".join(
            refused.stderr.split()
        )
        operator.run("stranded leave --link west-east --yes")
        operator.run("failback --link east-west --yes")
    asyncio.run(expect_at_east(operator, [*some_records(0, SHARED), *some_records(3_000, 2)], 50_000, 60_000))


async def expect_at_east(operator: Operator, shared: list[Record], newer: int, newest: int) -> None:
    async with Cluster(operator.link.source) as east:
        expected = contents([*shared, *some_records(newer, 3), *some_records(newest, 1)])
        assert contents(await read_all(east, WHERE)) == expected


def test_the_link_runs_again_when_its_source_alone_is_active_and_what_came_late_is_told(operator: Operator) -> None:
    asyncio.run(lose_and_go_on(operator))
    operator.run("stranded leave --link east-west --yes")
    with command(operator, "mirror", "run", "--link", "west-east"):
        asyncio.run(_has_all(operator))
        operator.run("switchover --link west-east --yes")
    operator.run("site standby --site east --topic flights --yes")
    assert end_of_way_back(operator)["role_in_the_way"] == "source_closed"
    operator.run("site thaw --site east --yes")
    operator.run("site thaw --site west --even-if-other-active --yes")
    assert end_of_way_back(operator)["role_in_the_way"] == "both_open"
    assert asyncio.run(state_of(operator.link)) is RunState.PROMOTED
    operator.run("site standby --site west --topic flights --yes")
    asyncio.run(write_at_west(operator, 2))
    (tail,) = end_of_way_back(operator)["stranded_at_target"]
    assert tail["records"] == 2
    assert asyncio.run(state_of(operator.link)) is RunState.RUNNING


def end_of_way_back(operator: Operator) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        operator.run("failback --link east-west --yes -o json", ExitCode.FINDINGS).stdout
    )
    return found


async def state_of(link: Link) -> RunState | None:
    async with Cluster(link.target) as target:
        run = (await read_entries(link, target)).run
        return None if run is None else run.state


async def write_at_west(operator: Operator, count: int) -> None:
    """By a client that a role does not keep from it."""
    async with Cluster(operator.link.target) as west:
        await write(west, WHERE, some_records(70_000, count))
