"""The commands about what only a lost site has, as an operator uses them when it is back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from deploy.cli.root import cli
from deploy.cli.terminal import ExitCode
from mirror.link import Link
from mirror.offsets.fence_ends import FenceEnd
from mirror.offsets.operations import promote_link
from mirror.offsets.source_ends import load_observation
from mirror.worker import parted
from tests.interop.servers import FarshoreBroker
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

WHERE = TopicPartition("flights", 0)
CONFIG = """
[sites.east]
bootstrap_servers = "{east}"
[sites.west]
bootstrap_servers = "{west}"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["flights"]
topic_names = "same"
groups = [".*"]
[[links]]
name = "west-east"
source = "west"
target = "east"
topics = ["flights"]
topic_names = "same"
groups = [".*"]
"""
SHARED = 20
STRANDED = 7
NEWER = 4
TWICE = "east has 7 records twice"


class Operator:
    """Runs `farshore --config FILE ...` against two brokers."""

    def __init__(self, folder: Path, east: str, west: str) -> None:
        self.folder, self.config = folder, folder / "farshore.toml"
        there = Link("east-west", Site("east", east), Site("west", west), ("flights",), groups=(".*",))
        there = replace(there, shared_targets=True)
        back = replace(there, name="west-east", source=there.target, target=there.source)
        self.link, self.back = replace(there, reverse_links=(back,)), replace(back, reverse_links=(there,))
        self.config.write_text(CONFIG.format(east=east, west=west))

    def run(self, line: str, code: int = ExitCode.DONE) -> Result:
        result = CliRunner().invoke(cli, ["--config", str(self.config), *line.split()])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    async def lose_east(self) -> None:
        """Records are mirrored, west is promoted, then both sites are written to."""
        async with Cluster(self.link.source) as east, Cluster(self.link.target) as west:
            await make_topic(east, WHERE.topic)
            await write(east, WHERE, some_records(0, SHARED))
            async with running(self.link):
                await wait_for_records(west, WHERE, SHARED)
            await promote_link(self.link, west, "failover-1")
            await write(east, WHERE, some_records(1_000, STRANDED))
            await write(west, WHERE, some_records(2_000, NEWER))

    async def at_west(self, count: int) -> list[tuple[object, ...]]:
        """After the mirror has gone on."""
        async with Cluster(self.link.target) as west, running(self.link):
            return contents(await wait_for_records(west, WHERE, count))

    async def read(self, site: Site) -> list[tuple[object, ...]]:
        async with Cluster(site) as cluster:
            return contents(await read_all(cluster, WHERE))


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        yield Operator(tmp_path, east.bootstrap, west.bootstrap)


def test_a_resumed_link_appends_nothing_behind_newer_records_unasked(operator: Operator) -> None:
    asyncio.run(operator.lose_east())
    listed = json.loads(operator.run("stranded list --link east-west -o json").stdout)
    (tail,) = listed["tails"]
    assert (listed["records"], tail["records"], tail["left"], tail["target_wrote"]) == (STRANDED, STRANDED, False, True)
    assert "east alone has 7 records in 1 range" in operator.run("stranded list --link east-west").stdout
    for line in ("link resume --link east-west --yes", "link resume --link east-west --dry-run"):
        refused = " ".join(operator.run(line, ExitCode.REFUSED).stderr.split())
        assert "east has 7 records in 1 partition that west lacks, and west has newer ones" in refused
        assert "--stranded leave" in refused
    before = asyncio.run(operator.read(operator.link.target))
    operator.run("link resume --link east-west --stranded leave --yes")
    later = contents(some_records(3_000, 2))

    async def go_on() -> list[tuple[object, ...]]:
        async with Cluster(operator.link.source) as east:
            await write(east, WHERE, some_records(3_000, 2))
        return await operator.at_west(len(before) + 2)

    assert asyncio.run(go_on()) == [*before, *later]


def test_status_says_that_records_of_before_the_takeover_wait_for_a_decision(operator: Operator) -> None:
    async def lose() -> None:
        async with Cluster(operator.link.source) as east, Cluster(operator.link.target) as west:
            await make_topic(east, WHERE.topic)
            await write(east, WHERE, some_records(0, SHARED))

            async def is_seen() -> bool:
                return WHERE in (await load_observation(operator.link, west)).ends

            async with running(operator.link):
                await wait_for_records(west, WHERE, SHARED)
                await eventually(is_seen, "the source's end to be seen")
            await write(east, WHERE, some_records(1_000, STRANDED))
            end = FenceEnd(SHARED + STRANDED, east.clock.now_ms(), is_told=True)
            await promote_link(operator.link, west, "failover-1", ends={WHERE: end})

    asyncio.run(lose())
    told = operator.run("status --link east-west", ExitCode.FINDINGS).stdout  # both take writes
    assert "east-west: in 1 partition east alone has records from before west took over" in " ".join(told.split())
    assert "\n  farshore stranded list --link east-west\n" in told


def test_where_clients_went_back_to_the_site_that_was_left_nobody_is_to_fail_back(operator: Operator) -> None:
    async def go_back() -> None:
        await operator.lose_east()
        async with Cluster(operator.back.target) as east:
            async with running(operator.back):
                await wait_for_records(east, WHERE, SHARED + STRANDED + NEWER)
            await promote_link(operator.back, east, "switchover-2")

    asyncio.run(go_back())
    listed = json.loads(operator.run("stranded list --link east-west -o json").stdout)
    assert [step["command"].removeprefix("farshore ") for step in listed["next"]] == [
        "stranded export --link east-west --to DIR",
        "link resume --link east-west --stranded leave",
        "link resume --link east-west --stranded append",
    ]


def test_whoever_says_that_they_stay_gets_none_appended_also_where_the_target_has_nothing_newer(
    operator: Operator,
) -> None:
    """It was shown as appended, and appended, for good: only what stood behind newer records stayed."""
    both = [TopicPartition("flights", partition) for partition in range(2)]

    async def lose_east() -> None:
        async with Cluster(operator.link.source) as east, Cluster(operator.link.target) as west:
            await make_topic(east, WHERE.topic, 2)
            for where in both:
                await write(east, where, some_records(0, SHARED))
            async with running(operator.link):
                for where in both:
                    await wait_for_records(west, where, SHARED)
            await promote_link(operator.link, west, "failover-1")
            await write(west, both[1], some_records(2_000, NEWER))
            for where in both:
                await write(east, where, some_records(1_000, STRANDED))

    asyncio.run(lose_east())
    leave = "link resume --link east-west --stranded leave"
    dry = json.loads(operator.run(f"{leave} --dry-run -o json").stdout)
    assert ([tail["partition"] for tail in dry["leaves_at_source"]], dry["brings"]) == ([0, 1], [])
    told = operator.run(f"{leave} --dry-run").stdout
    assert "14 records of 2 partitions stay at east alone" in told
    assert "appended" not in told
    refused = " ".join(operator.run("link resume --link east-west --yes", ExitCode.REFUSED).stderr.split())
    assert "east has 7 records in 1 partition that west lacks, and west has newer ones" in refused
    assert "7 records in 1 partition more, where it has nothing newer, go the way you choose" in refused
    operator.run(f"{leave} --yes")
    later = contents(some_records(3_000, 2))

    async def go_on() -> list[tuple[object, ...]]:
        async with Cluster(operator.link.source) as east:
            for where in both:
                await write(east, where, some_records(3_000, 2))
        async with Cluster(operator.link.target) as west, running(operator.link):
            await wait_for_records(west, both[1], SHARED + NEWER + 2)
            return contents(await wait_for_records(west, both[0], SHARED + 2))

    assert asyncio.run(go_on()) == [*contents(some_records(0, SHARED)), *later]


def test_what_is_not_there_to_be_decided_or_replayed_is_said(operator: Operator) -> None:
    async def mirror() -> None:
        async with Cluster(operator.link.source) as east, Cluster(operator.link.target) as west:
            await make_topic(east, WHERE.topic)
            await write(east, WHERE, some_records(0, 1))
            async with running(operator.link):
                await wait_for_records(west, WHERE, 1)
            await write(east, WHERE, some_records(1, STRANDED))

    asyncio.run(mirror())
    for paused in (False, True):
        if paused:
            operator.run("link pause --link east-west")
        told = operator.run("stranded leave --link east-west --yes", ExitCode.REFUSED).stderr
        assert "link east-west is not promoted" in told
        assert "only what a promoted link left behind is decided about" in " ".join(told.split())
        told = operator.run("stranded list --link east-west").stdout
        assert "link east-west is not promoted: what east has beyond what was mirrored is its lag" in " ".join(
            told.split()
        )
        assert "has no record" not in told, "it was said of a paused link with hundreds behind"
        listed = json.loads(operator.run("stranded list --link east-west -o json").stdout)
        assert (listed["is_promoted"], listed["records"], listed["tails"]) == (False, None, [])
        export = f"stranded export --link east-west --to {operator.folder}/none"
        assert "is not promoted" in operator.run(export, ExitCode.REFUSED).stderr
        assert not (operator.folder / "none").exists()
    wrong = operator.run("stranded replay --link east-west --from nowhere --policy append --yes", ExitCode.USAGE)
    assert "nowhere has no manifest.json: it is no export" in " ".join(wrong.stderr.split())
    wrong = operator.run("link resume --link east-west --gap flights:7 --yes", ExitCode.USAGE)
    assert "flights:7 does not stand at a gap" in wrong.stderr


def test_whoever_asks_for_it_has_them_appended(operator: Operator) -> None:
    asyncio.run(operator.lose_east())
    before = asyncio.run(operator.read(operator.link.target))
    line = "link resume --link east-west --stranded append"
    dry = json.loads(operator.run(f"{line} --dry-run -o json").stdout)
    assert ([tail["records"] for tail in dry["brings"]], dry["leaves_at_source"]) == ([STRANDED], [])
    assert "7 records of 1 partition are appended at west" in operator.run(f"{line} --dry-run").stdout
    done = json.loads(operator.run(f"{line} --yes -o json").stdout)
    assert (dry["condition"], done["condition"]) == ("promoted", "running")
    appended = contents(some_records(1_000, STRANDED))
    assert asyncio.run(operator.at_west(SHARED + NEWER + STRANDED)) == [*before, *appended]


def test_saved_left_and_replayed_each_stranded_record_is_at_both_sites_once(operator: Operator) -> None:
    asyncio.run(operator.lose_east())
    saved = operator.folder / "saved"
    told = operator.run(f"stranded export --link east-west --to {saved}").stdout
    digests = [one["sha256"] for one in json.loads((saved / "manifest.json").read_text())["ranges"]]
    assert not [one for one in digests if one[:8] in told], "each range was a block of its own, with its SHA-256"
    assert "7 records in 1 range saved to " in " ".join(told.split())
    replay = f"stranded replay --link east-west --from {saved} --policy append"
    assert "was not told to leave flights-0" in operator.run(f"{replay} --yes", ExitCode.REFUSED).stderr
    operator.run("stranded leave --link east-west --dry-run")
    operator.run("stranded export --link east-west --to " + str(saved), ExitCode.REFUSED)
    operator.run("stranded leave --link east-west", ExitCode.REFUSED)
    decided = " ".join(operator.run("stranded leave --link east-west --yes").stdout.split())
    assert decided.startswith("decided: 7 records in 1 partition of east stay there; link east-west does not bring")
    assert "7 records in 1 range; all of these were decided about before, and stay at east" in " ".join(
        operator.run("stranded list --link east-west").stdout.split()
    )
    assert json.loads(operator.run("stranded list --link east-west -o json").stdout)["tails"][0]["left"] is True
    told = " ".join(operator.run(f"{replay} --dry-run").stdout.split())
    assert "7 records would be appended at west" in told
    assert TWICE in told
    assert digests[0][:8] not in told
    assert TWICE in " ".join(operator.run(replay, ExitCode.REFUSED).stderr.split())
    for expected in ({"records": STRANDED, "records_before": 0}, {"records": 0, "records_before": STRANDED}):
        done = json.loads(operator.run(f"{replay} --yes -o json").stdout)
        assert {name: done[name] for name in expected} == expected
    at_west = asyncio.run(operator.read(operator.link.target))
    values = [content[2] for content in at_west[SHARED + NEWER :]]
    assert values == [record.value for record in some_records(1_000, STRANDED)]


def test_the_way_back_says_how_many_records_it_brings_a_second_time(operator: Operator) -> None:
    """It named the records that stay, and nothing of their copies, which came along the link back."""
    asyncio.run(operator.lose_east())
    saved = operator.folder / "saved"
    operator.run(f"stranded export --link east-west --to {saved}")
    operator.run("stranded leave --link east-west --yes")
    failback, shown = "failback --link east-west --dry-run", "7 of these were replayed at west"
    assert shown not in " ".join(operator.run(failback, ExitCode.REFUSED).stdout.split())
    done = operator.run(f"stranded replay --link east-west --from {saved} --policy append --yes")
    assert " ".join(done.stderr.split()).count(TWICE) == 1, "before it is done, and not at its end again"
    assert shown in " ".join(operator.run(failback, ExitCode.REFUSED).stdout.split())
    assert json.loads(operator.run(f"{failback} -o json", ExitCode.REFUSED).stdout)["left_replayed"] == STRANDED

    async def promote_east() -> None:
        async with Cluster(operator.link.source) as east:
            await promote_link(operator.back, east, "failover-2")

    asyncio.run(promote_east())
    resume = "link resume --link west-east --stranded append --dry-run"
    told = " ".join(operator.run(resume).stdout.split())
    assert "are appended at east" in told
    assert "7 of these are copies that were replayed at west of what east has in its own log" in told
    assert json.loads(operator.run(f"{resume} -o json").stdout)["replayed_copies"] == STRANDED


def test_what_was_decided_to_stay_is_in_no_later_export_but_when_it_is_asked_for(operator: Operator) -> None:
    asyncio.run(operator.lose_east())
    operator.run("stranded leave --link east-west --yes")
    export = f"stranded export --link east-west -o json --to {operator.folder}"
    refused = operator.run(f"{export}/none", ExitCode.ERROR).stderr
    assert "add --left to save it" in " ".join(refused.split())

    async def write_more() -> None:
        async with Cluster(operator.link.source) as east:
            await write(east, WHERE, some_records(3_000, 2))

    asyncio.run(write_more())
    for more, count in (("", 2), (" --left", STRANDED)):
        manifest = json.loads(operator.run(f"{export}/saved{more.strip()}{more}").stdout)
        assert [one["records"] for one in manifest["ranges"]] == [count]


def test_they_are_saved_to_the_folder_that_the_shell_stands_in_and_through_a_symbolic_link(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first was a traceback; the second wrote everything, and failed on the link."""
    asyncio.run(operator.lose_east())
    for name in ("here", "there"):
        (operator.folder / name).mkdir()
    monkeypatch.chdir(operator.folder / "here")
    operator.run("stranded export --link east-west --to .")
    (operator.folder / "link").symlink_to(operator.folder / "there")
    operator.run(f"stranded export --link east-west --to {operator.folder}/link")
    for name in ("here", "there"):
        manifest = json.loads((operator.folder / name / "manifest.json").read_text())
        assert [one["records"] for one in manifest["ranges"]] == [STRANDED]


def test_where_the_logs_cannot_be_compared_what_there_is_is_not_known(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parted, "PARTED_LOOK_MS", 0)
    asyncio.run(operator.lose_east())
    listed = operator.run("stranded list --link east-west", ExitCode.FINDINGS).stdout
    assert "what east alone has is not known: flights-0" in " ".join(listed.split())
    found = json.loads(operator.run("stranded list --link east-west -o json", ExitCode.FINDINGS).stdout)
    assert (found["records"], [tail["records"] for tail in found["tails"]]) == (None, [STRANDED])
