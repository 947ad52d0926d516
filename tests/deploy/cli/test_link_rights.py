"""`farshore link rights`: with what it prints commands work, and without any one of it they say which is missing.

A cluster shows nobody what he may not describe: it is as if it were not there, and in lists nobody can tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import committed_offsets
from broker.client.topics import delete_topics, list_topics
from broker.wire.vocabulary import CLUSTER_NAME, AclOperation, AclResource, TopicPartition
from deploy.config import load, parse
from deploy.rights import rights_of
from failover.losses.replayed import REPLAYS
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.worker.events import Event
from tests.chaos_runs.warm_commands import Said
from tests.deploy.cli.rights_stage import LIMITED, OURS, PAIRS, Right, RightsStage, names, rights_stage
from tests.interop.locked import USER
from tests.mirror.harness import Told, eventually, make_topic, running, some_records, write

TOPIC, GROUP, CANARY = "flights", "analysts", "__farshore-canary-east-west"
OF_BROKERS = {"cluster describe", "cluster brokers", "cluster controller", "cluster verify"}
ONE_SIDE = {"topic list", "topic describe", "group list", "group describe", *OF_BROKERS}
LINES = {
    "status": "status",
    "link describe": "link describe",
    "offsets translate": f"offsets translate --topic {TOPIC} --partition 0 --offset 3",
    "drill": "drill",
    "operation list": "operation list",
    "topic list": "topic list",
    "topic describe": f"topic describe --topic {TOPIC}",
    "group list": "group list",
    "group describe": f"group describe --group {GROUP}",
    "site role": "site role",
    "site freeze": "site freeze --site east --yes",
    "site thaw": "site thaw --site east --yes",
    "link pause": "link pause",
    "link resume": "link resume --yes",
    "link restart": "link restart",
    "topic pause": f"topic pause --topic {TOPIC}",
    "topic resume": f"topic resume --topic {TOPIC}",
    "canary run": "canary run --duration 1s",
    "cluster describe": "cluster describe",
    "cluster brokers": "cluster brokers",
    "cluster controller": "cluster controller",
    "cluster verify": "cluster verify",
    "acls plan": "acls plan",
    "acls users": "acls users",
}
UNDO = {
    "site thaw": LINES["site freeze"],
    "link pause": LINES["link resume"],
    "link resume": LINES["link pause"],
    "link restart": LINES["link resume"],
    "topic pause": LINES["topic resume"],
    "topic resume": LINES["topic pause"],
}
"""What is typed before each look, by who may do everything: a command that finds all done already needs less."""
HIDES = {
    *(("drill", *place) for place in (("west", "__farshore-ends-east-west"), ("east", "__consumer_offsets"))),
    *(
        (command, site, TOPIC)
        for command in ("topic list", "group list", "group describe", "acls plan", *OF_BROKERS)
        for site in ("east", "west")
    ),
    *(("group list", site, GROUP) for site in ("east", "west")),
}
"""Where a command goes by lists: without the right to describe it, what it has of this at this site is not there."""
OF_TAILS = {("link resume", "west", CANARY), ("link resume", "east", REPLAYS.topic), ("drill", "west", REPLAYS.topic)}
"""What a command asks for only of a link whose source has something alone."""
OF_PROMOTED = {
    ("site thaw", "west", CLUSTER_NAME),
    ("group describe", "west", "__farshore-offsets-east-west"),  # asked with a link, not with a site
    *(("status", site, name) for site in ("east", "west") for name in ("__farshore-producers", CLUSTER_NAME)),
    ("status", "west", "__farshore-ends-east-west"),
}
"""Asked for of a link whose target took over alone, or where no site is named."""


@pytest.fixture(params=PAIRS)
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RightsStage]:
    with rights_stage(tmp_path, request.param) as stage:
        yield stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsStage]:
    folder = tmp_path_factory.mktemp("rights")
    with rights_stage(folder, OURS) as stage:
        yield stage


@pytest.fixture(scope="module")
def mirrored(stage: RightsStage) -> Iterator[RightsStage]:
    """A link whose mirror runs, with all rights."""
    stage.declare("east-west", TOPIC, GROUP)
    stage.fill(TOPIC, GROUP)
    with stage.mirror():
        stage.await_mirrored()
        yield stage


def said_by(stage: RightsStage, command: str) -> list[Said]:
    if command in UNDO:
        stage.run(UNDO[command], USER)
    sites = (" --site east", " --site west") if command in ONE_SIDE else ("",)
    return [stage.run(f"{LINES[command]}{site}") for site in sites]


def text_of(said: list[Said]) -> str:
    return "".join(each.out + each.err for each in said)


@pytest.mark.parametrize("command", LINES)
def test_a_command_works_with_its_rights_and_says_which_is_missing(mirrored: RightsStage, command: str) -> None:
    needs_what_is_printed(mirrored, command)


def needs_what_is_printed(mirrored: RightsStage, command: str) -> None:
    rights = mirrored.printed(command)
    mirrored.give(rights)
    all_right = said_by(mirrored, command)
    assert "AUTHORIZATION_FAILED" not in text_of(all_right)
    assert {said.code for said in all_right} <= ({0, 4} if command in ("drill", "status") else {0}), text_of(all_right)
    for missing in rights:
        if missing.operation is AclOperation.CREATE:
            mirrored.at(missing.site, lambda cluster: delete_topics(cluster, [CANARY]))
        mirrored.give(right for right in rights if right != missing)
        said = said_by(mirrored, command)
        if (command, missing.site, missing.name) in {*OF_PROMOTED, *OF_TAILS}:
            continue
        is_hidden = (command, missing.site, missing.name) in HIDES and missing.operation in (
            AclOperation.DESCRIBE,
            AclOperation.READ,
        )
        if is_hidden:
            assert not names(missing, text_of(said)), f"{missing} is said, and does not belong into HIDES"
        else:
            assert names(missing, text_of(said)), f"{command} without {missing}:\n{text_of(said)}"
    if command in UNDO:
        for line in (LINES["link resume"], LINES["topic resume"]):
            mirrored.run(line, USER)
    if command == "site freeze":
        assert mirrored.run("site thaw --site east --yes", USER).code == 0


def prepared(stage: RightsStage, link: str, number: int) -> Link:
    """A link with a topic to be made at the target, one to be grown, and its canary's -> as the limited user has it."""
    topic, group = f"t{number}-", f"g{number}"
    stage.declare(link, f"{topic}.*", group)
    stage.fill(f"{topic}made", group)
    stage.fill(f"{topic}grown", group, max_message_bytes="300000")

    async def at_source(cluster: Cluster) -> None:
        await make_topic(cluster, f"__farshore-canary-{link}")
        if PRODUCERS_TOPIC not in await list_topics(cluster):  # as of a link that goes on or back from here
            await make_topic(cluster, PRODUCERS_TOPIC, cleanup_policy="compact")
        await write(cluster, TopicPartition(f"__farshore-canary-{link}", 0), some_records(0, 3))

    async def at_target(cluster: Cluster) -> None:
        await make_topic(cluster, f"{topic}grown")
        await delete_topics(cluster, ["__farshore-producers"])

    stage.at("east", at_source)
    stage.at("west", at_target)
    return load(stage.files[LIMITED]).link(link)


def hides_from_mirror(right: Right, number: int) -> bool:
    """What the mirror finds by lists."""
    by_lists = (f"t{number}-", f"__farshore-canary-l{number}", f"g{number}")
    return right.site == "east" and right.name in by_lists and right.operation is not AclOperation.DESCRIBE_CONFIGS


async def runs_with_all(link: Link) -> None:
    told = Told()
    async with running(link, told=told), Cluster(link.target) as target:

        async def is_carried() -> bool:
            return bool(await committed_offsets(target, "g0"))

        await told.wait_for(Event.CONFIG_APPLIED)
        await eventually(is_carried, "the group to be carried")
        assert {"t0-made", "t0-grown", "__farshore-canary-l0"} <= set(await list_topics(target))
    assert "AUTHORIZATION_FAILED" not in str(told.events)


async def says(link: Link, missing: Right) -> None:
    told = Told()

    async def is_said() -> bool:
        return names(missing, str(told.events))

    async with running(link, told=told):
        await eventually(is_said, f"the mirror to say that it lacks {missing}", 30.0)


def test_the_mirror_runs_with_its_rights_and_says_which_is_missing(fresh: RightsStage) -> None:
    stage = fresh
    link = prepared(stage, "l0", 0)
    every = stage.printed("mirror run")
    stage.give(every)
    asyncio.run(runs_with_all(link))
    hidden = []
    for number in range(1, len(every) + 1):
        link = prepared(stage, f"l{number}", number)
        rights = stage.printed("mirror run")
        missing = rights[number - 1]
        if hides_from_mirror(missing, number):
            hidden.append(missing)
            continue
        stage.give(right for right in rights if right != missing)
        asyncio.run(says(link, missing))
    assert len(hidden) == 3


def test_a_topic_that_is_named_and_hidden_is_said_though_it_was_never_mirrored(fresh: RightsStage) -> None:
    """The source lists it to nobody who may not describe it: mirror and status said nothing, and looked healthy."""
    stage = fresh
    stage.declare("l0", TOPIC, GROUP)
    stage.fill(TOPIC, GROUP)
    missing = next(
        r for r in stage.printed("mirror run") if r[:4] == ("east", AclOperation.READ, AclResource.TOPIC, TOPIC)
    )
    stage.give(right for right in stage.printed("mirror run", "status") if right != missing)
    asyncio.run(says(load(stage.files[LIMITED]).link("l0"), missing))
    said = stage.run("status")
    assert "partition_held" in said.out
    assert names(missing, said.out)


TOML = """
[sites.east]
bootstrap_servers = "kafka-1:9092"
[sites.west]
bootstrap_servers = "kafka-2:9092"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = {topics}
topic_names = "{names}"
groups = ["analysts"]
units = 2
"""
PRINCIPALS = {"east": "User:farshore", "west": "User:farshore"}


@pytest.mark.parametrize(
    ("topic_names", "topics", "expected"),
    [
        ("same", '["flights"]', {("flights", "literal")}),
        ("prefixed", '["flights"]', {("east.flights", "literal")}),
        ("same", '["orders-.*"]', {("orders-", "prefixed")}),
        ("same", "['orders\\.v1']", {("orders.v1", "literal")}),
        ("same", '["orders.v1"]', {("orders", "prefixed")}),
        ("same", '["orders*"]', {("order", "prefixed")}),
        ("same", "['orders\\.*']", {("orders", "prefixed")}),
        ("same", '["flights|orders-.*"]', {("flights", "literal"), ("orders-", "prefixed")}),
        ("same", '["a(b|c)"]', {("*", "literal")}),
        ("same", '["a[bc]d"]', {("a", "prefixed")}),
        ("same", '[".*"]', {("*", "literal")}),
        ("prefixed", '[".*"]', {("east.", "prefixed")}),
        ("same", '["(?i)flights"]', {("*", "literal")}),
        ("same", '["flights", "flights"]', {("flights", "literal")}),
    ],
)
def test_what_a_link_declares_is_named_as_an_acl_can(
    topic_names: str, topics: str, expected: set[tuple[str, str]]
) -> None:
    link = parse(TOML.format(topics=topics, names=topic_names), Path("farshore.toml")).link(None)
    rights = rights_of(link, ["offsets translate"], PRINCIPALS)
    found = [right for right in rights if not right.name.startswith("__farshore")]
    assert {(right.name, right.pattern) for right in found} == expected
    assert len(found) == len(expected)


def test_each_unit_has_a_fence_of_its_own() -> None:
    link = parse(TOML.format(topics='["a b"]', names="same"), Path("farshore.toml")).link(None)
    fences = [right for right in rights_of(link, ["mirror run"], PRINCIPALS) if right.resource == "transactional_id"]
    assert [right.name for right in fences] == [
        "farshore-east-west",
        "farshore-east-west.1",
        "farshore-east-west.groups",
    ]
    acl = "kafka-acls --bootstrap-server kafka-2:9092 --add --allow-principal User:farshore --operation Write"
    assert fences[1].command == f"{acl} --transactional-id farshore-east-west.1"


@pytest.mark.parametrize(
    "others",
    [
        pytest.param(["west-east"], id="there is a link back"),
        pytest.param(["west-north", "north-east"], id="a ring"),
    ],
)
def test_a_mirror_reads_what_it_kept_of_records_that_may_come_back(others: list[str]) -> None:
    """In a ring the right was needed, and not among what is printed."""
    one_way = TOML.format(topics='["flights"]', names="same")
    name = "__farshore-ends-east-west"

    def operations(text: str) -> set[str]:
        link = parse(text, Path("farshore.toml")).link("east-west")
        rights = rights_of(link, ["mirror run"], {**PRINCIPALS, "north": "User:farshore"})
        return {operation for right in rights if right.name == name for operation in right.operations}

    more = '[sites.north]\nbootstrap_servers = "kafka-3:9092"\n'
    for other in others:
        source, target = other.split("-")
        more += f'[[links]]\nname = "{other}"\nsource = "{source}"\ntarget = "{target}"\ntopics = ["flights"]\n'
    assert operations(one_way + more) - operations(one_way) == {"Read"}


def test_a_line_of_a_prefix_and_of_the_cluster() -> None:
    link = parse(TOML.format(topics='["orders-.*"]', names="same"), Path("farshore.toml")).link(None)
    lines = [right.command for right in rights_of(link, ["topic list", "site freeze"], PRINCIPALS)]
    assert lines[0].endswith("--operation Describe --topic orders- --resource-pattern-type prefixed")
    assert lines[-1].endswith("--operation AlterConfigs --cluster")


def test_who_does_what_several_commands_do_needs_what_they_need() -> None:
    link = parse(TOML.format(topics='["orders-.*"]', names="same"), Path("farshore.toml")).link(None)

    def given(*commands: str) -> set[tuple[str, str, str, str]]:
        rights = rights_of(link, commands, PRINCIPALS)
        return {(one.site, one.resource, one.name, each) for one in rights for each in one.operations}

    assert given("monitor run") == given("status", "drill", "canary run")
    assert given("apply") == given("switchover", "failover")


def test_who_comes_by_a_certificate_is_named_by_hand(tmp_path: Path, stage: RightsStage) -> None:
    text = TOML.format(topics='["flights"]', names="same").replace(
        "[sites.west]", '[sites.east.security]\nprotocol = "SSL"\ncertificate_file = "me.pem"\n[sites.west]'
    )
    (tmp_path / "farshore.toml").write_text(text)
    stage.files["by hand"] = tmp_path / "farshore.toml"
    refused = stage.run("link rights", "by hand")
    assert (refused.code, "--principal User:NAME" in refused.err) == (2, True)
    shown = stage.json("link rights --principal User:CN=farshore", "by hand")["items"]
    assert {item["command"].split("--allow-principal ")[1].split()[0] for item in shown} == {"User:CN=farshore"}
    table = stage.run("link rights --principal User:CN=farshore --command 'topic list'", "by hand")
    assert "topic list" in table.out
    assert "mirror run" not in table.out
