"""What `farshore link rights` prints for a command is what the command asks the authorizers of both sites for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.client.topics import list_topics
from broker.wire.vocabulary import AclOperation, AclPattern, AclResource, TopicPartition
from chaos.cleaning import Cleaning
from chaos.names import LINK_PREFIX, OWN_PREFIXES, topic_of
from chaos.scenario import mirror_config
from deploy.config import load, parse
from deploy.rights import RIGHTS, rights_of
from failover.journal.topic import OPERATIONS_TOPIC
from mirror.link import Link
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.state import read_entries
from mirror.offsets.taking_over import claim_link
from mirror.worker.events import Event
from tests.deploy.cli.commands import leaves
from tests.deploy.cli.recorded_rights import WHO, RecordedSites, binding_of, is_of, recorded_sites
from tests.deploy.cli.rights_stage import LIMITED, Right, printed_rights
from tests.mirror.harness import Told, eventually, make_topic, running, some_records, wait_for_records, write

TOPIC, GROUP, RECORDS = "flights", "analysts", 20
WHERE = TopicPartition(TOPIC, 0)
LINKS = """
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["flights.*"]
groups = ["analysts"]
[[links]]
name = "west-east"
source = "west"
target = "east"
topics = ["flights.*"]
groups = ["analysts"]
"""
CHECKED = {OPERATIONS_TOPIC, "__farshore-acls-east-west"}
"""How these are kept is looked at, and set, where that is allowed."""
ASK_NO_SITE = {
    *(
        "demo",
        "config validate",
        "config show",
        "broker run",
        "broker user",
        "cluster start",
        "link rights",
        "link list",
    ),
    *("fleet status", "fleet plan", "fleet drain", "fleet undrain", "fleet rebalance"),
    *("audit list", "audit show", "audit diff"),
}
"""They read files and etcd, or start brokers of their own."""


def test_each_command_that_asks_a_site_has_its_rights() -> None:
    assert {" ".join(words) for words in leaves()} == RIGHTS.keys() | ASK_NO_SITE
    assert RIGHTS.keys().isdisjoint(ASK_NO_SITE)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedSites]:
    """What the link has was mirrored, and no mirror runs."""
    with recorded_sites(tmp_path_factory.mktemp("recorded")) as found:
        found.declare(LINKS)
        found.do(mirrored(found.links["east-west"]))
        yield found


async def mirrored(link: Link) -> None:
    async with Cluster(link.source) as east, Cluster(link.target) as west:
        await make_topic(east, TOPIC)
        await make_topic(east, link.canary_topic)
        await write(east, WHERE, some_records(0, RECORDS))
        await commit_offsets(east, GROUP, {WHERE: CommittedOffset(4)})

        async def is_carried() -> bool:
            names = (TOPIC, link.canary_topic)
            return WHERE in await committed_offsets(west, GROUP) and {*names} <= (await list_topics(west)).keys()

        async with running(link):
            await wait_for_records(west, WHERE, RECORDS)
            await eventually(is_carried, "the group and the canary's topic")


@contextmanager
def mirror_of(sites: RecordedSites, name: str) -> Iterator[None]:
    """Beside the commands, as who may do everything."""
    stop = asyncio.Event()

    async def run() -> None:
        async with running(sites.links[name]):
            await stop.wait()

    worker = asyncio.run_coroutine_threadsafe(run(), sites.loop)
    try:
        yield
    finally:
        sites.loop.call_soon_threadsafe(stop.set)
        worker.result(60)


def asks(
    sites: RecordedSites,
    command: str,
    *lines: str,
    idle: Collection[str] = (),
    without: Collection[str] = (),
    maybe: Collection[str] = (),
) -> None:
    """Each works with what is printed for the command, and together they ask for all of that. `idle`: what is needed
    only where the sites stand otherwise, `maybe` as now; `without`: what is asked for, and gone without.
    """
    rights = sites.printed("east-west", command)
    used, refused = set[Right](), set[Right]()
    for line in lines:
        sites.give(rights)
        result = sites.run(line)
        used, refused = used | sites.used, refused | sites.refused
        assert result.exit_code == 0, result.output
    told = {right for right in refused if right.operation is AclOperation.DESCRIBE_CONFIGS and right.name in CHECKED}
    if command == "cluster verify":  # of what it sees on the disks alone it asks whether it is hidden
        told |= {right for right in refused if right.operation is AclOperation.DESCRIBE and right.name.startswith("__")}
    assert {str(right) for right in refused - told} == {*without}, command
    unused = {str(right) for right in rights if not any(is_of(one, right) for one in used)}
    if command != "operation resume":  # that may go on with any of several commands
        assert unused - {*maybe} == {*idle}, command


def test_commands_ask_for_what_is_printed_for_them(sites: RecordedSites) -> None:
    """One after the other: each changes more of it."""
    commands_of_a_running_link(sites)
    operations_and_the_way_back(sites)
    audits_name_what_they_lack(sites)
    a_mirror_with_a_way_back_asks_for_what_is_printed(sites)
    commands_behind_a_failover(sites)


def audits_name_what_they_lack(sites: RecordedSites) -> None:
    """Of a link with a way back, whose own topics were refused without a word of what for."""
    freeze = f"audit freeze --full --link east-west --output-dir {sites.folder}/audits --run-id frozen"
    asks(sites, "audit freeze", freeze)
    rights = sites.printed("east-west", "audit freeze")
    for missing in rights:
        sites.give(right for right in rights if right != missing)
        kind = missing.resource.name.lower()
        lacks = f"user {LIMITED} at {missing.site} lacks {missing.operation.word} on the {kind} {missing.name}"
        assert lacks in " ".join(sites.run(freeze).output.split()), missing


def a_mirror_with_a_way_back_asks_for_what_is_printed(sites: RecordedSites) -> None:
    """It stopped at the registry of its source, which had come with the link back."""
    told, link = Told(), load(sites.config).link("east-west")
    sites.give(sites.printed("east-west", "mirror run"))

    async def runs() -> None:
        async with running(link, told=told), Cluster(sites.links["east-west"].target) as west:
            before_ms = (await read_entries(sites.links[link.name], west)).groups.looked_at_ms

            async def has_looked() -> bool:
                return (await read_entries(sites.links[link.name], west)).groups.looked_at_ms != before_ms

            await told.wait_for(Event.STARTED)
            await eventually(has_looked, "a pass of the groups")

    sites.do(runs())
    assert {str(right) for right in sites.refused} == set(), told.events
    ends = f"west: READ TOPIC {link.ends_topic}"
    sites.give(right for right in sites.printed("east-west", "mirror run") if str(right) != ends)

    async def says() -> None:
        async with running(link, told=told):
            (said,) = await told.wait_for(Event.ENDS_NOT_KEPT)
            assert f"{link.ends_topic}-0 at west: TOPIC_AUTHORIZATION_FAILED" in str(said)

    sites.do(says())
    of_group = [f"--site {site} --group analysts" for site in ("east", "west")]
    asks(
        sites,
        "group describe",
        *(f"group describe {which}" for which in (*of_group, "--link east-west --group analysts")),
    )


def commands_of_a_running_link(sites: RecordedSites) -> None:
    both = ("--site east", "--site west")
    for what in ("describe", "brokers", "controller", "verify"):
        asks(sites, f"cluster {what}", *(f"cluster {what} {site}" for site in both))
    read = Right("east", AclOperation.READ, AclResource.TOPIC, TOPIC, AclPattern.LITERAL)
    for site, reader in (("east", "User:reader"), ("west", "User:other")):
        sites.authorizers[site].others = (binding_of(read, reader),)
    of_no_back = ["east: READ TOPIC __farshore-acls-west-east"]
    asks(sites, "acls apply", *["acls apply --link east-west --yes"] * 2, idle=of_no_back)
    sites.give([])
    assert sites.run("acls apply --link west-east --yes", as_super_user=True).exit_code == 0
    asks(sites, "acls plan", "acls plan --link east-west")
    asks(sites, "acls users", "acls users --link east-west")
    asks(sites, "link cut", *(f"link cut --link east-west --units {units} --yes" for units in (2, 1)))
    asks(sites, "link pause", "link pause --link east-west")
    assert sites.run("link resume --link east-west --yes", as_super_user=True).exit_code == 0
    asks(sites, "link restart", "link restart --link east-west")
    for what in ("pause", "resume"):
        asks(sites, f"topic {what}", f"topic {what} --link east-west --topic flights")
    for site in ("east", "west"):
        sites.at(site, lambda cluster: make_topic(cluster, "flights-old"))
    asks(sites, "topic delete", *(f"topic delete {site} --topic flights-old --yes" for site in both))
    asks(sites, "site standby", "site standby --site west --yes", idle=["east: ALTER_CONFIGS CLUSTER kafka-cluster"])
    assert sites.run("site thaw --site west --even-if-other-active --yes", as_super_user=True).exit_code == 0


async def hold(link: Link, west: Cluster) -> None:
    """As a worker that was refused, and has ended."""
    claim = await claim_link(west, link, "host:1")
    await claim.log.append([Hold(TOPIC, 0, HoldReason.ERROR_AT_TARGET, "may not be written", 5, 60_005)])


def operations_and_the_way_back(sites: RecordedSites) -> None:
    groups_id = sites.links["east-west"].groups_transactional_id
    with mirror_of(sites, "east-west"):
        passed = ["east: DESCRIBE CLUSTER kafka-cluster", f"west: DESCRIBE TRANSACTIONAL_ID {groups_id}"]
        passed.append("west: DESCRIBE TOPIC __farshore-ends-east-west")
        behind_fence = ["west: ALTER_CONFIGS CLUSTER kafka-cluster", f"east: READ TOPIC {OPERATIONS_TOPIC}"]
        abort = f"operation abort {cut_short(sites)} --yes"
        asks(sites, "operation abort", abort, without=passed, idle=behind_fence)
        asks(sites, "operation resume", f"operation resume {cut_short(sites)} --yes")
    assert sites.run("site thaw --site east --even-if-other-active --yes", as_super_user=True).exit_code == 0
    write_at_both(sites, 1_000)
    with mirror_of(sites, "west-east"):
        sites.at("east", lambda east: eventually(lambda: has_run(sites.links["west-east"], east), "the link back"))
        idle = [f"west: CREATE TOPIC {OPERATIONS_TOPIC}"]
        idle += [f"east: {one} TOPIC __farshore-canary-west-east" for one in ("READ", "WRITE")]
        idle += [f"{site}: READ TOPIC __farshore-replays" for site in ("west", "east")]
        by_worker = ["east: READ GROUP analysts"]  # what the link back has come to by then
        by_worker += [f"east: {one} TOPIC __farshore-ends-west-east" for one in ("READ", "WRITE")]
        asks(
            sites,
            "failback",
            f"failback --link east-west --export-to {sites.folder}/saved --yes",
            idle=idle,
            maybe=by_worker,
        )
    operations = json.loads(sites.run("operation list -o json", as_super_user=True).stdout)["items"]
    ended = operations[0]["operation_id"]
    asks(sites, "operation list", "operation list")
    for what in ("show", "wait"):
        asks(sites, f"operation {what}", f"operation {what} {ended}")
    sites.at("west", lambda west: hold(sites.links["east-west"], west))
    asks(sites, "link retry", "link retry --link east-west --yes")


def commands_behind_a_failover(sites: RecordedSites) -> None:
    moved = sites.run("failover --link east-west --allow-data-loss --even-if-source-answers --yes", as_super_user=True)
    assert moved.exit_code in (0, 4), moved.output
    write_at_both(sites, 5_000)
    asks(sites, "stranded list", "stranded list --link east-west")
    export = f"--link east-west --{{}} {sites.folder}/exported"
    asks(sites, "stranded export", f"stranded export {export.format('to')}")
    asks(sites, "stranded leave", *(f"stranded leave --link east-west {how}" for how in ("--dry-run", "--yes")))
    replay = f"stranded replay {export.format('from')} --policy append --yes"
    asks(sites, "stranded replay", replay, replay)
    write_at_both(sites, 9_000)
    resume = "link resume --link east-west --stranded leave --yes"
    asks(sites, "link resume", resume, idle=["east: READ TOPIC __farshore-replays"])
    plans_read_what_was_replayed_of_what_was_left(sites)


def plans_read_what_was_replayed_of_what_was_left(sites: RecordedSites) -> None:
    """The plan said that they are left "only where they were replayed": it was not given to read what was."""
    for command, line in (("switchover", "switchover --link east-west --dry-run"), ("drill", "drill --link east-west")):
        rights = sites.printed("east-west", command)
        sites.give(rights)
        told = json.loads(sites.run(f"{line} -o json").stdout)
        (seen,) = told["items"] if command == "drill" else (told["snapshot"],)
        found = [(one["records"], one["may_be_replayed"]) for one in seen["left_at_source"]]
        assert found == [(3, False)] * 2, "by the failback, and by the last resumption: all else was replayed"


def cut_short(sites: RecordedSites) -> str:
    """A switchover without the right to fence -> its id."""
    ids = AclResource.TRANSACTIONAL_ID
    fence = (ids, sites.links["east-west"].transactional_id)
    sites.give(one for one in sites.printed("east-west", "switchover") if (one.resource, one.name) != fence)
    assert sites.run("switchover --link east-west --yes").exit_code == 1
    (found,) = json.loads(sites.run("operation list --open -o json", as_super_user=True).stdout)["items"]
    operation_id = found["operation_id"]
    assert isinstance(operation_id, str)
    return operation_id


def write_at_both(sites: RecordedSites, first: int) -> None:
    for site in ("east", "west"):
        sites.at(site, lambda cluster: write(cluster, WHERE, some_records(first, 3)))
    sites.at("west", lambda west: commit_offsets(west, GROUP, {WHERE: CommittedOffset(RECORDS)}))


async def has_run(back: Link, east: Cluster) -> bool:
    return WHERE in (await read_entries(back, east)).checkpoints


def test_a_chaos_run_is_cleaned_up(sites: RecordedSites) -> None:
    run = "0123abcd"
    left = {"east": [topic_of(run)], "west": [topic_of(run), *(f"{one}{LINK_PREFIX}{run}" for one in OWN_PREFIXES)]}
    for site, names in left.items():
        for name in names:
            sites.at(site, lambda cluster, name=name: make_topic(cluster, name))  # type: ignore[misc]
    rights = sites.printed("east-west", "chaos clean")
    sites.give(rights)

    async def clean() -> None:
        async with AsyncExitStack() as stack:
            limited = load(sites.config).link("east-west")
            ends = (limited.source, limited.target)
            there = Cleaning({one.name: await stack.enter_async_context(Cluster(one)) for one in ends}, (), None)
            found = await there.find(watch_s=0)
            await there.remove(found.dead)

    sites.do(clean())
    assert not sites.refused
    assert all(any(is_of(one, right) for one in sites.used) for right in rights)
    for site, names in left.items():
        assert {*names}.isdisjoint(sites.at(site, list_topics)), site


def test_a_chaos_run_lets_its_mirror_run() -> None:
    """It has the run's own topic, and no groups and no canary."""
    sites = '[sites.east]\nbootstrap_servers = "e:1"\n[sites.west]\nbootstrap_servers = "w:1"\n'
    links = LINKS.replace("[[links]]", '[[links]]\ntopic_names = "prefixed"')
    link, run = parse(sites + links, Path("farshore.toml")).link("east-west"), "0123abcd"
    text = mirror_config(link, run, topic_of(run), {"e:1": "127.0.0.1:9"}, lambda _: "")
    own = parse(text, Path("own.toml")).links()[0]
    principals = {"east": WHO, "west": WHO}

    def given(one: Link, command: str) -> list[Right]:
        printed = rights_of(one, [command], principals)
        return [right for each in printed for right in printed_rights(each.site, each.command)]

    canaries = {own.canary_topic, own.target_topic(own.canary_topic)}
    needed = [right for right in given(own, "mirror run") if right.name not in canaries]
    printed = given(link, "chaos run latency")
    assert [str(right) for right in needed if not any(is_of(right, one) for one in printed)] == []
