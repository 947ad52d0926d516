"""Two pairs of links of disjoint topics between two sites: whole-site moves there and back, a loss, and each way back.

Judged by content: what a consumer of each group reads next where it went, and all records at both sites.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import read_records
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.client.topics import list_topics
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import DEADLINE_S, Shell
from tests.deploy.test_runbook import LINK, SITE, OwnBroker, is_allowed, written
from tests.interop.servers import FarshoreBroker, wait_until
from tests.mirror.harness import read_all, write

TOPICS: Final = ("flights", "orders-eu")
PATTERNS: Final = {"flights": ("east-west", "west-east"), "orders-.*": ("orders-ew", "orders-we")}
PATTERN_OF: Final = {there: pattern for pattern, (there, _) in PATTERNS.items()}
THERE, BACK = ("east-west", "orders-ew"), ("west-east", "orders-we")
GROUPS: Final = {"g1": ("flights",), "g2": ("flights", "orders-eu"), "g3": ("orders-eu",)}
STAMPED_MS: Final = 1_700_000_000_000


@contextmanager
def two_pairs(folder: Path, held_at_start: Container[str] = ("east",)) -> Iterator[Shell]:
    """As a site sets them up; one worker runs the links there. `held_at_start`: sites that start frozen."""
    east, west = OwnBroker(folder, "east"), OwnBroker(folder, "west")
    parts = ['state_dir = "state"']
    for name, site in (("east", east), ("west", west)):
        held = str(name in held_at_start).lower()
        parts.append(SITE.format(name=name, listen=site.bootstrap, data_dir=site.data_dir, held=held))
    for pattern, names in PATTERNS.items():
        for name, source, target in zip(names, ("east", "west"), ("west", "east"), strict=True):
            parts.append(LINK.format(name=name, source=source, target=target, topic=pattern))
    (folder / "farshore.toml").write_text("".join(parts))
    with east, west:
        shell = Shell(folder, east, west)
        shell.run("site thaw --site east --yes", ExitCode.DONE)
        for topic in TOPICS:
            shell.run(f"topic create --site east --topic {topic} --config retention.ms=-1", ExitCode.DONE)
        try:
            yield shell
        finally:
            shell.close()


def produce(site: FarshoreBroker, said: str, count: int, *topics: str) -> None:
    async def append() -> None:
        async with Cluster(Site("site", site.bootstrap)) as cluster:
            for topic in topics or TOPICS:
                records = [Record(0, STAMPED_MS, None, f"{said} {number}".encode()) for number in range(count)]
                await write(cluster, TopicPartition(topic, 0), records)

    asyncio.run(append())


def read_on(site: FarshoreBroker, count: int, *topics: str) -> dict[tuple[str, str], str]:
    """Each group reads so many records more -> what it reads next."""

    async def read() -> None:
        async with Cluster(Site("site", site.bootstrap)) as cluster:
            for group, reads in GROUPS.items():
                stands = await committed_offsets(cluster, group)
                for topic in reads:
                    at = TopicPartition(topic, 0)
                    if topics and topic not in topics:
                        continue
                    end = (await log_end_offsets(cluster, [at]))[at]
                    start = stands[at].offset if at in stands else 0
                    offsets = [record.offset async for record in read_records(cluster, at, start, end)]
                    await commit_offsets(cluster, group, {at: CommittedOffset(offsets[count - 1] + 1)})

    asyncio.run(read())
    return reads_next(site)


def reads_next(site: FarshoreBroker) -> dict[tuple[str, str], str]:
    """By content what each group reads next in each topic; "" at the end."""

    async def read() -> dict[tuple[str, str], str]:
        found = {}
        async with Cluster(Site("site", site.bootstrap)) as cluster:
            for group, reads in GROUPS.items():
                stands = await committed_offsets(cluster, group)
                for topic in reads:
                    at = TopicPartition(topic, 0)
                    end = (await log_end_offsets(cluster, [at]))[at]
                    start = stands[at].offset if at in stands else 0
                    rest = [one.value or b"" async for one in read_records(cluster, at, start, end)]
                    found[group, topic] = rest[0].decode() if rest else ""
        return found

    return asyncio.run(read())


def records_at(site: FarshoreBroker) -> dict[str, Counter[str]]:
    async def read() -> dict[str, Counter[str]]:
        async with Cluster(Site("site", site.bootstrap)) as cluster:
            there = [topic for topic in TOPICS if topic in await list_topics(cluster)]
            return {
                topic: Counter((one.value or b"").decode() for one in await read_all(cluster, TopicPartition(topic, 0)))
                for topic in there
            }

    return asyncio.run(read())


def until_equal(shell: Shell) -> None:
    wait_until(lambda: records_at(shell.east) == records_at(shell.west), DEADLINE_S, "both sites to have all records")


def move_site(shell: Shell, source: str, target: str) -> Any:
    line = f"switchover --from {source} --to {target}"
    wait_until(lambda: is_allowed(shell, f"{line} --dry-run"), DEADLINE_S, f"nothing to speak against {line}")
    return json.loads(shell.run(f"{line} --yes -o json", ExitCode.DONE).stdout)


def role(shell: Shell, site: str) -> tuple[str, list[str]]:
    (row,) = json.loads(shell.run(f"site role --site {site} -o json", ExitCode.DONE).stdout)["items"]
    return row["role"], row["topics"]


def commands(document: Mapping[str, Any]) -> list[str]:
    return [step["command"].removeprefix("farshore ") for step in document["next"] if step["command"]]


def test_there_and_back_twice_then_a_loss_and_each_links_own_way_back(tmp_path: Path) -> None:
    with two_pairs(tmp_path) as shell:
        produce(shell.east, "first", 9)
        read_on(shell.east, 2)
        for links in (THERE, BACK):
            shell.begin("mirror run " + " ".join(f"--link {link}" for link in links))
        until_equal(shell)
        _, _, resume_back, _, _, resume_there = written("Planned", whole_site=True)
        assert resume_back == written("Planned")[3]
        for turn in (1, 2):
            expected = read_on(shell.east, 1)
            moved = move_site(shell, "east", "west")
            assert [one["link"] for one in moved["links"]] == list(THERE)
            assert [one for one in commands(moved) if "switchover" in one] == ["switchover --from west --to east"]
            if turn == 2:
                assert {f"link resume --link {link}" for link in BACK} <= set(commands(moved))
                for link in BACK:
                    shell.run(f"{resume_back.replace('west-east', link)} --yes", ExitCode.DONE)
            assert reads_next(shell.west) == expected
            produce(shell.west, f"west {turn}", 4)
            expected = read_on(shell.west, 3)
            until_equal(shell)
            moved = move_site(shell, "west", "east")
            assert [one["link"] for one in moved["links"]] == list(BACK)
            assert {f"link resume --link {link}" for link in THERE} <= set(commands(moved))
            assert reads_next(shell.east) == expected
            for link in THERE:
                shell.run(f"{resume_there.replace('east-west', link)} --yes", ExitCode.DONE)
            produce(shell.east, f"east {turn}", 4)
            until_equal(shell)
        lose_east(shell)
        come_back(shell)


def lose_east(shell: Shell) -> None:
    """With records that it alone has; the way back is one command, as the failover was."""
    wait_until(lambda: reads_next(shell.west) == reads_next(shell.east), DEADLINE_S, "the groups at west")
    expected = reads_next(shell.west)
    for service in shell.services:
        service.kill()
        service.wait(DEADLINE_S)
    shell.services.clear()
    produce(shell.east, "stranded", 3)
    shell.east.kill9()
    lost = json.loads(shell.run("failover --from east --to west --allow-data-loss --yes -o json", ExitCode.DONE).stdout)
    told = commands(lost)
    assert [command for command in told if command.startswith("failback")] == ["failback --from east --to west"]
    assert not any("switchover" in command for command in told)
    assert reads_next(shell.west) == expected
    produce(shell.west, "west alone", 5)
    shell.east.start()
    shell.run("site standby --site east --yes", ExitCode.DONE)


def come_back(shell: Shell) -> None:
    shell.begin("mirror run " + " ".join(f"--link {link}" for link in (*THERE, *BACK)))
    expected = read_on(shell.west, 2)
    at_west = records_at(shell.west)
    (dry_run,) = written("Failback", whole_site=True)
    line = dry_run.removesuffix(" --dry-run")
    wait_until(partial(is_allowed, shell, f"{dry_run} -o json"), DEADLINE_S, "nothing to speak against it")
    planned = json.loads(shell.run(f"{dry_run} -o json", ExitCode.DONE).stdout)
    told = [(one["link"], one["link_back"], one["outcome"], one["stranded_records"]) for one in planned["links"]]
    assert told == [(there, back, "comes_back", 3) for there, back in zip(THERE, BACK, strict=True)]
    done = shell.run(f"{line} --yes -o json", ExitCode.DONE)
    came = json.loads(done.stdout)
    first, second = re.findall(r"applications may start there(.*?); watching", " ".join(done.stderr.split()))
    assert first.startswith(", but not: g2; nor along links that stay at west: orders-ew (2 groups)"), first
    assert second == "", "all is back"
    assert [(one["link"], one["outcome"], one["exit_code"]) for one in came["links"]] == [
        (link, "back", 0) for link in THERE
    ]
    assert not [step for step in came["next"] if "failback" in step["command"]]
    shell.run(f"{line} --yes", ExitCode.REFUSED)
    assert role(shell, "east") == ("active", [])
    assert role(shell, "west") == ("standby", sorted(PATTERN_OF.values()))
    wait_until(lambda: not findings(shell), 30, "nothing to be found any more")
    assert reads_next(shell.east) == expected
    assert records_at(shell.west) == at_west
    stranded = Counter(f"stranded {number}" for number in range(3))
    assert records_at(shell.east) == {topic: records + stranded for topic, records in at_west.items()}
    produce(shell.east, "at home", 2)
    at_home = Counter(f"at home {number}" for number in range(2))
    there = {topic: records + at_home for topic, records in at_west.items()}
    wait_until(lambda: records_at(shell.west) == there, DEADLINE_S, "what east wrote since, and no stranded record")


def test_what_went_back_by_a_link_that_was_not_let_run_again_is_not_moved_and_not_forgotten(tmp_path: Path) -> None:
    """Of the links from west only that of the orders runs again when the site moves for the third time."""
    with two_pairs(tmp_path) as shell:
        produce(shell.east, "first", 9)
        read_on(shell.east, 2)
        for links in (THERE, BACK):
            shell.begin("mirror run " + " ".join(f"--link {link}" for link in links))
        until_equal(shell)
        move_site(shell, "east", "west")
        move_site(shell, "west", "east")
        for link in THERE:
            shell.run(f"link resume --link {link} --yes", ExitCode.DONE)
        until_equal(shell)
        move_site(shell, "east", "west")
        shell.run("link resume --link orders-we --yes", ExitCode.DONE)
        produce(shell.west, "west alone", 4)
        expected = read_on(shell.west, 9)

        line = "switchover --from west --to east"
        wait_until(lambda: is_moving(shell, line, "orders-we"), DEADLINE_S, "orders to be movable")
        result = json.loads(shell.run(f"{line} --yes -o json", ExitCode.REFUSED).stdout)
        assert ([one["link"] for one in result["links"]], result["refused_links"]) == (["orders-we"], ["west-east"])
        stays = {(stay["subject"], stay["reason"]) for stay in result["stays"]}
        assert {("west-east", "refused"), ("g1", "link_stays"), ("g2", "in_part")} <= stays
        (start,) = [step["what"] for step in result["next"] if step["what"].startswith("start producers")]
        assert start.endswith("; but not what reads or writes along west-east: that stays at west")
        resumed = [step for step in commands(result) if "resume" in step]
        assert resumed == ["link resume --link orders-ew", "link resume --link orders-we"], "and not the other pair's"

        for link in ("orders-ew", "east-west"):
            shell.run(f"link resume --link {link} --yes", ExitCode.DONE)
        alone = {("west-east", "left_behind", None)}
        wait_until(lambda: findings(shell) == alone, 30, "no other finding than that of what is at west alone")
        refused = shell.run(f"{line} --dry-run -o json", ExitCode.REFUSED).stdout
        assert {one["reason"] for one in json.loads(refused)["refusals"]} >= {"moved_back"}
        shell.run("link resume --link west-east --yes", ExitCode.DONE)
        until_equal(shell)
        move_site(shell, "west", "east")
        assert reads_next(shell.east) == expected


def is_moving(shell: Shell, line: str, link: str) -> bool:
    return bool(json.loads(shell.ask(f"{line} --dry-run -o json").stdout)["moving"] == [link])


def findings(shell: Shell) -> set[tuple[str, str, str | None]]:
    found = json.loads(shell.ask("status -o json").stdout)["items"]
    return {(link["link"], one["kind"], one["topic"]) for link in found for one in link["findings"]}
