"""Who comes back along the link back is told what the site that was lost has alone, before and not behind the move."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker.client.cluster import Cluster
from broker.wire.vocabulary import TopicPartition
from deploy.cli.root import cli
from mirror.link import Link
from mirror.offsets.fence_ends import FenceEnd
from mirror.offsets.operations import promote_link
from mirror.offsets.source_ends import load_observation
from mirror.offsets.state import read_entries
from tests.chaos_runs.warm_commands import Said, warm_commands
from tests.deploy.cli.test_stranded import CONFIG, SHARED, STRANDED, Operator, operator
from tests.mirror.harness import eventually, make_topic, running, some_records, wait_for_records, write

__all__ = ["operator"]

TOLD = "in 1 partition east alone has 7 records from before west took over, and nobody decided about them"
UNKNOWN = "whether east alone has records that nobody decided about is not known"
LIST, BACK = "farshore stranded list --link east-west", "farshore failback --link east-west"
ORDERS = TopicPartition("orders", 0)


async def lose_east(operator: Operator, *links: Link) -> None:
    """With a tail of each link's topic that was there before west took over; their link back ran meanwhile."""
    for link in links or (operator.link,):
        where = TopicPartition(link.topics[0], 0)
        async with Cluster(link.source) as east, Cluster(link.target) as west:
            await make_topic(east, where.topic)
            await write(east, where, some_records(0, SHARED))

            async def have_run(link: Link = link, east: Cluster = east, west: Cluster = west) -> bool:
                """Both: where the ends of the source's logs are kept is made by the first worker."""
                is_seen = (await load_observation(link, west)).last is not None
                return is_seen and (await read_entries(link.reverse_links[0], east)).owner is not None

            async with running(link), running(link.reverse_links[0]):
                await wait_for_records(west, where, SHARED)
                await eventually(have_run, "both links to run")
            await write(east, where, some_records(1_000, STRANDED))
            end = FenceEnd(SHARED + STRANDED, east.clock.now_ms(), is_told=True)
            await promote_link(link, west, f"failover of {link.name}", ends={where: end})


def invoked(operator: Operator, line: str) -> Result:
    """Whether the move itself may go hangs on how long ago a worker was heard."""
    return CliRunner().invoke(cli, ["--config", str(operator.config), *line.split()])


async def beside(operator: Operator, line: str) -> Said:
    """In another process, beside the mirror that runs here."""
    arguments = ["--config", str(operator.config), *line.split()]
    return await asyncio.to_thread(warm_commands().run, arguments, operator.folder)


def told(said: str) -> str:
    return " ".join(said.split())


def undecided(operator: Operator, line: str) -> Any:
    return json.loads(invoked(operator, f"{line} -o json").stdout)["undecided"]


SWITCHOVERS = ("switchover --link west-east", "switchover --from west --to east")


def test_a_move_back_along_the_link_back_names_what_nobody_decided_about(operator: Operator) -> None:
    """Only `status` did; the switchover went, and the link that had been promoted was refused behind it."""
    asyncio.run(lose_east(operator))

    async def check() -> None:
        async with running(operator.back):
            for line in SWITCHOVERS:
                shown = (await beside(operator, f"{line} --dry-run")).out
                assert f"east-west: {TOLD}" in told(shown)
                assert f"\n  {LIST}\n" in shown
                assert f"\n  {BACK}\n" in shown
                (found,) = json.loads((await beside(operator, f"{line} --dry-run -o json")).out)["undecided"]
                assert (found["link"], found["partitions"], found["records"]) == ("east-west", 1, STRANDED)
                assert (found["why_not_known"], found["commands"]) == ("", [LIST, BACK])
                asked = await beside(operator, line)
                assert TOLD in told(asked.err), "before the question"

    asyncio.run(check())
    operator.run("stranded leave --link east-west --yes")
    for line in SWITCHOVERS:
        assert undecided(operator, f"{line} --dry-run") == []


def test_who_goes_at_once_does_not_wait_for_it(operator: Operator) -> None:
    asyncio.run(lose_east(operator))
    operator.run("link pause --link west-east")
    assert undecided(operator, "switchover --link west-east --yes") is None, "refused, and not looked for"


def test_link_resume_of_the_link_back_names_it_before_the_switchover(operator: Operator) -> None:
    asyncio.run(lose_east(operator))
    operator.run("link pause --link west-east")
    resumed = json.loads(operator.run("link resume --link west-east --yes -o json").stdout)
    assert [step["command"] for step in resumed["next"]][:2] == [LIST, BACK]
    assert resumed["next"][0]["what"] == f"east-west: {TOLD}"


def test_a_failback_that_would_be_refused_is_not_named(operator: Operator) -> None:
    """Nobody runs the link back: what is at west would be waited for in vain."""
    asyncio.run(lose_east(operator))
    operator.run("link pause --link west-east")
    operator.run("link resume --link west-east --yes")
    (found,) = undecided(operator, "switchover --link west-east --dry-run")
    assert (found["records"], found["commands"]) == (STRANDED, [LIST])
    assert BACK not in invoked(operator, "switchover --link west-east --dry-run").stdout


@pytest.fixture
def two_pairs(operator: Operator) -> tuple[Link, Link]:
    """A pair of links of other clients, of another topic, beside the first; the links there."""
    more = CONFIG.partition("[[links]]")[2].replace("east-west", "orders-ew").replace("west-east", "orders-we")
    more = "[[links]]" + more.replace("flights", "orders")
    operator.config.write_text(operator.config.read_text() + more)
    there = replace(operator.link, name="orders-ew", topics=("orders",))
    back = replace(operator.back, name="orders-we", topics=("orders",))
    there, back = replace(there, reverse_links=(back,)), replace(back, reverse_links=(there,))
    return operator.link, there


def test_what_other_clients_lost_is_none_of_it(operator: Operator, two_pairs: tuple[Link, Link]) -> None:
    """It was told by the sites alone: who moved the flights back was sent to a failback of the orders."""
    asyncio.run(lose_east(operator, *two_pairs))
    for back, there in (("west-east", "east-west"), ("orders-we", "orders-ew")):
        assert [one["link"] for one in undecided(operator, f"switchover --link {back} --dry-run")] == [there]
    both = undecided(operator, "switchover --from west --to east --dry-run")
    assert [one["link"] for one in both] == ["east-west", "orders-ew"]


def test_one_limit_is_for_all_links_and_what_is_not_told_by_then_is_told_as_that(
    operator: Operator, two_pairs: tuple[Link, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as nothing; and a site that said nothing took seconds for each link."""
    asyncio.run(lose_east(operator, *two_pairs))
    for name in ("failover.failback.undecided", "deploy.cli.undecided"):
        monkeypatch.setattr(f"{name}.UNDECIDED_S", 0.0)
    line = "switchover --from west --to east --dry-run"
    found = undecided(operator, line)
    assert [(one["link"], one["records"]) for one in found] == [("east-west", None), ("orders-ew", None)]
    assert {one["why_not_known"] for one in found} == {"it was not told within 0 s"}
    shown = told(invoked(operator, line).stdout)
    assert f"east-west: {UNKNOWN}: it was not told within 0 s" in shown
    operator.run("link pause --link west-east")
    resumed = json.loads(operator.run("link resume --link west-east --yes -o json").stdout)
    step = resumed["next"][0]
    assert UNKNOWN in step["what"]
    assert "within 0 s" in step["what"]
    assert step["command"] == LIST
    assert BACK not in [one["command"] for one in resumed["next"]]
