"""`--from` and `--to`: all links between two sites moved by one command, in whole, in part, by filters, by a plan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import read_records
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.draining import drain_held_up
from tests.deploy.cli.test_failover import DEADLINE_S, Shell, is_draining
from tests.interop.servers import FarshoreBroker, wait_until
from tests.mirror.harness import make_topic, some_records, write

FLIGHTS = TopicPartition("flights", 0)
ORDERS = TopicPartition("orders", 0)
RECORDS = 30
READ: Mapping[str, Mapping[TopicPartition, int]] = {
    "analysts": {FLIGHTS: 7, ORDERS: 11},
    "billing": {ORDERS: 23},
}
CONFIG = """
state_dir = "state"
[sites.east]
bootstrap_servers = "{east}"
[sites.west]
bootstrap_servers = "{west}"
[sites.north]
bootstrap_servers = "127.0.0.1:9"
[[links]]
name = "flights"
source = "east"
target = "west"
topics = ["flights"]
topic_names = "same"
groups = ["analysts", "billing"]
[[links]]
name = "orders"
source = "east"
target = "west"
topics = ["orders.*"]
topic_names = "same"
groups = ["analysts", "billing"]
[[links]]
name = "east-north"
source = "east"
target = "north"
topics = ["weather"]
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """For the tests that move nothing."""
    with two_links(tmp_path_factory.mktemp("shell")) as shell:
        yield shell


@pytest.fixture
def own_shell(tmp_path: Path) -> Iterator[Shell]:
    with two_links(tmp_path) as shell:
        yield shell


@contextmanager
def two_links(folder: Path) -> Iterator[Shell]:
    """Two brokers and a mirror that has carried records and groups of both links."""
    with FarshoreBroker(folder / "east") as east, FarshoreBroker(folder / "west") as west:
        (folder / "farshore.toml").write_text(CONFIG.format(east=east.bootstrap, west=west.bootstrap))
        shell = Shell(folder, east, west)
        asyncio.run(fill(east))
        shell.begin("mirror run --link flights --link orders")
        try:
            wait_until(lambda: asyncio.run(is_carried(west)), DEADLINE_S, "records and groups at west")
            yield shell
        finally:
            shell.close()


async def fill(east: FarshoreBroker) -> None:
    async with Cluster(Site("east", east.bootstrap)) as cluster:
        for number, topic in enumerate(("flights", "orders", "notes")):
            await make_topic(cluster, topic)
            await write(cluster, TopicPartition(topic, 0), some_records(number * 1000, RECORDS))
        for group, read in READ.items():
            await commit_offsets(cluster, group, {at: CommittedOffset(offset) for at, offset in read.items()})
        await commit_offsets(cluster, "writers-room", {TopicPartition("notes", 0): CommittedOffset(3)})


async def write_flights(east: FarshoreBroker, count: int) -> None:
    async with Cluster(Site("east", east.bootstrap)) as cluster:
        await write(cluster, FLIGHTS, some_records(0, count))


async def is_carried(west: FarshoreBroker) -> bool:
    async with Cluster(Site("west", west.bootstrap)) as cluster:
        return all([set(await committed_offsets(cluster, group)) == set(read) for group, read in READ.items()])


def next_records(site: FarshoreBroker, *groups: str) -> dict[tuple[str, str], Any]:
    """What each group reads next in each topic, by content."""

    async def read() -> dict[tuple[str, str], Any]:
        found: dict[tuple[str, str], Any] = {}
        async with Cluster(Site("site", site.bootstrap)) as cluster:
            for group in groups or READ:
                for at, committed in (await committed_offsets(cluster, group)).items():
                    async for record in read_records(cluster, at, committed.offset, committed.offset + 100):
                        found[group, at.topic] = tuple(record)[1:]
                        break
        return found

    return asyncio.run(read())


def stays(document: Any) -> set[tuple[str, str, str]]:
    return {(stay["kind"], stay["subject"], stay["reason"]) for stay in document["stays"]}


def role_of(shell: Shell, site: str) -> tuple[str, list[str]]:
    (row,) = json.loads(shell.run(f"site role --site {site} -o json", ExitCode.DONE).stdout)["items"]
    return row["role"], row["topics"]


BESIDE = {
    ("link", "east-north", "other_sites"),
    ("topic", "notes", "not_carried"),
    ("group", "writers-room", "not_carried"),
}


def test_wrong_uses_are_said(shell: Shell) -> None:
    for line, said in (
        ("--from east", "given together"),
        ("--from east --to west --link flights", "give one or the other"),
        ("--from west --to east", "no link goes from west to east"),
        ("--from east --to nowhere", "no site"),
        ("--link flights --topic flights", "name those by --from and --to"),
        ("--from east --to west --topic [", "no regular expression"),
    ):
        assert said in " ".join(shell.run(f"switchover {line} --dry-run", ExitCode.USAGE).stderr.split()), line


def test_a_plan_has_all_links_and_what_stays_and_changes_nothing(shell: Shell) -> None:
    plan = json.loads(shell.run("switchover --from east --to west --dry-run -o json", ExitCode.DONE).stdout)
    assert (plan["operation"], plan["source"], plan["target"]) == ("switchover", "east", "west")
    assert (plan["moving"], plan["refused"], plan["refusals"]) == (["flights", "orders"], [], [])
    assert [one["snapshot"]["link"] for one in plan["links"]] == ["flights", "orders"]
    assert (plan["loss"]["offsets"], plan["loss"]["certainty"]) == (0, "exact")
    assert stays(plan) == BESIDE
    told = shell.run("switchover --from east --to west --dry-run", ExitCode.DONE).stdout
    assert "switchover: east -> west; 2 of 2 links go" in told
    assert max(map(len, told.splitlines())) <= 80
    assert "topic notes: no link between the two sites carries it" in told
    assert shell.operations == []


def test_a_link_alone_says_which_groups_stay(shell: Shell) -> None:
    plan = json.loads(shell.run("switchover --link flights --dry-run -o json", ExitCode.DONE).stdout)
    assert stays(plan) == {("group", "analysts", "other_topics"), ("group", "billing", "no_offsets")}
    told = shell.run("switchover --link flights --dry-run", ExitCode.DONE).stdout
    assert "group analysts: it goes, but its offsets in topics that do not go stay (orders)" in " ".join(told.split())


def test_a_filter_by_topics_takes_whole_links_or_is_refused(shell: Shell) -> None:
    some = json.loads(
        shell.run("switchover --from east --to west --topic fl.* --dry-run -o json", ExitCode.DONE).stdout
    )
    assert some["moving"] == ["flights"]
    assert stays(some) == BESIDE | {
        ("link", "orders", "not_selected"),
        ("group", "analysts", "in_part"),
        ("group", "billing", "link_stays"),
    }
    for more in ("", "--topic fl.* "):
        asked = f"switchover --from east --to west {more}--topic nope --dry-run"
        none = shell.run(f"{asked} -o json", ExitCode.USAGE)
        assert [one["reason"] for one in json.loads(none.stdout)["refusals"]] == ["nothing_selected"]
        said = shell.run(asked, ExitCode.USAGE)
        assert "no link from east to west carries a topic that --topic nope names" in " ".join(said.stderr.split())
        assert "nothing is lost" not in said.stdout, "it stood above a table with records behind"


def test_a_filter_by_groups_takes_the_links_that_they_read(shell: Shell) -> None:
    plan = json.loads(
        shell.run("switchover --from east --to west --group billing --dry-run -o json", ExitCode.DONE).stdout
    )
    assert plan["moving"] == ["orders"]
    assert {(move["group"], move["topic"]) for one in plan["links"] for move in one["moves"]} == {("billing", "orders")}
    assert stays(plan) == BESIDE | {("link", "flights", "not_selected"), ("group", "analysts", "not_named")}
    told = shell.run("switchover --from east --to west --group nope --yes", ExitCode.USAGE)
    assert "neither east nor west knows the group nope" in told.stderr


def test_a_failover_of_a_site_that_answers_is_refused_once(shell: Shell) -> None:
    told = json.loads(
        shell.run("failover --from east --to west --allow-data-loss --yes -o json", ExitCode.REFUSED).stdout
    )
    assert ([one["reason"] for one in told["refusals"]], told["moving"]) == (["source_answers"], [])
    assert shell.operations == []


def test_a_drill_of_a_site_says_what_would_stay(shell: Shell) -> None:
    found = json.loads(shell.ask("drill --from east --to west -o json").stdout)
    assert ([one["link"] for one in found["items"]], stays(found)) == (["flights", "orders"], BESIDE)


def test_all_links_are_moved_by_one_operation(own_shell: Shell) -> None:
    before = next_records(own_shell.east)
    result = json.loads(
        own_shell.run("switchover --from east --to west --yes --reason storm -o json", ExitCode.DONE).stdout
    )
    assert ([one["link"] for one in result["links"]], result["verified"]) == (["flights", "orders"], True)
    assert own_shell.operations == [result["operation_id"]]
    assert next_records(own_shell.west) == before == next_records(own_shell.east)
    assert len(before) == 3
    assert role_of(own_shell, "east") == ("standby", ["flights", "orders.*"])
    assert role_of(own_shell, "west")[0] == "active"
    shown = own_shell.shown(result["operation_id"])
    assert (shown["state"], shown["links"], shown["reason"]) == ("verified", ["flights", "orders"], "storm")
    again = own_shell.run("switchover --from east --to west --yes", ExitCode.REFUSED)
    assert "already moved" in again.stderr


def test_a_link_that_is_refused_stays_and_is_moved_by_the_next_run(own_shell: Shell) -> None:
    before = next_records(own_shell.east)
    own_shell.run("link pause --link orders", ExitCode.DONE)
    dry = json.loads(own_shell.run("switchover --from east --to west --dry-run -o json", ExitCode.REFUSED).stdout)
    assert (dry["moving"], dry["refused"]) == (["flights"], ["orders"])
    assert {("link", "orders", "refused"), ("group", "analysts", "in_part")} <= stays(dry)
    whole = own_shell.run("switchover --from east --to west --whole-site --yes", ExitCode.REFUSED)
    assert "orders would stay; the link orders is paused" in " ".join(whole.stderr.split())
    assert own_shell.operations == []
    told = own_shell.run("switchover --from east --to west --yes", ExitCode.REFUSED)
    assert max(len(line) for line in told.stdout.splitlines() if not line.startswith("  farshore ")) <= 80
    assert "refused: the link orders is paused" in " ".join(told.stderr.split())
    assert role_of(own_shell, "east") == ("standby", ["flights"])
    (operation_id,) = own_shell.operations
    but = f"but not along links that stay at east: orders (2 groups) (`farshore operation show {operation_id}` has all)"
    assert f"applications may start there, {but}; " in " ".join(told.stderr.split())
    waited = own_shell.run(f"operation wait {operation_id}", ExitCode.REFUSED)
    assert "stay at east, with what reads along them: orders (2 groups)" in " ".join(waited.stdout.split())
    own_shell.run("link resume --link orders --yes", ExitCode.DONE)
    own_shell.run("site thaw --site east --topic flights --even-if-other-active --yes", ExitCode.DONE)
    asyncio.run(write_flights(own_shell.east, 25))
    own_shell.run("site standby --site east --topic flights --yes", ExitCode.DONE)

    result = json.loads(own_shell.run("switchover --from east --to west --yes -o json", ExitCode.DONE).stdout)
    assert [one["link"] for one in result["links"]] == ["orders"]
    assert {("link", "flights", "already_moved"), ("link", "flights", "source_alone")} <= stays(result)
    assert "farshore stranded list --link flights" in [step["command"] for step in result["next"]]
    assert next_records(own_shell.west) == before
    assert role_of(own_shell, "east") == ("standby", ["flights", "orders.*"])


def test_one_that_is_killed_is_resumed_with_one_document(own_shell: Shell) -> None:
    before = next_records(own_shell.east)
    with drain_held_up(own_shell.east.bootstrap):
        operation = own_shell.start("switchover --from east --to west --yes")
        wait_until(lambda: is_draining(own_shell, []), DEADLINE_S, "the drain to start")
        operation.process.kill()
        operation.end(DEADLINE_S)
    (operation_id,) = own_shell.operations
    result = json.loads(own_shell.run(f"operation resume {operation_id} --yes -o json", ExitCode.DONE).stdout)
    assert (result["operation_id"], [one["verified"] for one in result["links"]]) == (operation_id, [True, True])
    assert stays(result) == BESIDE
    assert next_records(own_shell.west) == before


def test_a_plan_of_a_site_is_applied_while_the_same_links_would_go(own_shell: Shell) -> None:
    before = next_records(own_shell.east)
    own_shell.run("switchover --from east --to west --out plan.json", ExitCode.DONE)
    file = own_shell.folder / "farshore.toml"
    whole = file.read_text()
    link = '[[links]]\nname = "notes"\nsource = "east"\ntarget = "west"\ntopics = ["notes"]\ntopic_names = "same"\n'
    file.write_text(f"{whole}\n{link}")
    other = own_shell.run("apply plan.json --yes", ExitCode.REFUSED)
    assert "the plan holds no more: links: flights, orders -> flights, orders, notes" in other.stderr
    file.write_text(whole)
    own_shell.run("link pause --link orders", ExitCode.DONE)
    refused = own_shell.run("apply plan.json --yes", ExitCode.REFUSED)
    assert "the plan holds no more: link_state orders" in refused.stderr
    assert own_shell.operations == []
    own_shell.run("link resume --link orders --yes", ExitCode.DONE)
    own_shell.run("switchover --from east --to west --out plan.json --yes", ExitCode.DONE)
    result = json.loads(own_shell.run("apply plan.json --yes -o json", ExitCode.DONE).stdout)
    assert [one["verified"] for one in result["links"]] == [True, True]
    assert next_records(own_shell.west) == before


def are_watched(shell: Shell) -> bool:
    drills = json.loads(shell.ask("drill --from east --to west -o json").stdout)["items"]
    return all(one["loss"]["pace_seconds"] for one in drills)


def test_a_lost_site_is_failed_over_with_one_total_of_the_loss(own_shell: Shell) -> None:
    before = next_records(own_shell.east)
    wait_until(lambda: are_watched(own_shell), DEADLINE_S, "east to be looked at twice for each link")
    own_shell.east.kill9()
    result = json.loads(
        own_shell.run("failover --from east --to west --allow-data-loss --yes -o json", ExitCode.DONE).stdout
    )
    parts = [one["loss"] for one in result["links"]]
    assert (result["loss"]["certainty"], result["loss"]["offsets"]) == (
        "at_least",
        sum(one["offsets"] for one in parts),
    )
    assert result["loss"]["seen_at"] == min(one["seen_at"] for one in parts)
    assert result["summary"].startswith("lost: likely 0 ")
    assert next_records(own_shell.west) == before
    assert ("link", "east-north", "other_sites") in stays(result)
    assert ("topic", "", "not_known") in stays(result)
    commands = [step["command"] for step in result["next"]]
    standby = "`farshore site standby --site east --topic flights --topic 'orders.*'`"
    assert any(standby in step["what"] for step in result["next"])
    assert {f"farshore mirror run --link {link}-back" for link in ("flights", "orders")} <= set(commands)
    assert len(commands) - commands.count("") == len(set(commands) - {""}), "nothing is said twice"
