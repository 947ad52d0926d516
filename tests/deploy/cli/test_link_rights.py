"""`farshore link rights`: with exactly what it prints commands work, and without any one of it they say which is missing.

A cluster shows nobody what he may not describe: it is as if it were not there, and in lists nobody can tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.topics import delete_topics, list_topics
from broker.wire.vocabulary import AclOperation, AclPattern, AclResource, TopicPartition
from deploy.config import load, parse
from deploy.rights import RIGHTS, rights_of
from mirror.link import Link
from mirror.worker.events import Event
from tests.chaos_runs.warm_commands import Said
from tests.deploy.cli.commands import leaves
from tests.deploy.cli.rights_stage import LIMITED, Right, RightsStage, printed_rights
from tests.interop.locked import USER, AuthorizingBroker
from tests.mirror.harness import Told, eventually, make_topic, running, some_records, write

TOPIC, GROUP, CANARY = "flights", "analysts", "__farshore-canary-east-west"
ONE_SIDE = {"topic list", "topic describe", "group list", "group describe"}
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
    "canary run": "canary run --duration 1s",
}
HIDES = {
    ("status", "east", TOPIC),
    ("link describe", "east", TOPIC),
    ("drill", "east", TOPIC),
    ("drill", "west", "__farshore-ends-east-west"),
    *(
        (command, site, TOPIC)
        for command in ("topic list", "group list", "group describe")
        for site in ("east", "west")
    ),
    *(("group list", site, GROUP) for site in ("east", "west")),
}
"""Where a command goes by lists: without the right to describe it, what it has of this at this site is not there."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsStage]:
    folder = tmp_path_factory.mktemp("rights")
    with AuthorizingBroker(folder / "east") as east, AuthorizingBroker(folder / "west") as west:
        yield RightsStage(folder, east, west)


@pytest.fixture(scope="module")
def mirrored(stage: RightsStage) -> Iterator[RightsStage]:
    """A link whose mirror runs, with all rights."""
    stage.declare("east-west", TOPIC, GROUP)
    stage.fill(TOPIC, GROUP)
    with stage.mirror():
        stage.await_mirrored()
        yield stage


def said_by(stage: RightsStage, command: str) -> list[Said]:
    sites = (" --site east", " --site west") if command in ONE_SIDE else ("",)
    return [stage.run(f"{LINES[command]}{site}") for site in sites]


def text_of(said: list[Said]) -> str:
    return "".join(each.out + each.err for each in said)


def names(right: Right, text: str) -> bool:
    """Whether it is said what is refused, and on what."""
    refused = f"{right.resource.name}_AUTHORIZATION_FAILED"
    return refused in text and (right.name in text or right.resource is AclResource.CLUSTER)


@pytest.mark.parametrize("command", LINES)
def test_a_command_works_with_its_rights_and_says_which_is_missing(mirrored: RightsStage, command: str) -> None:
    rights = mirrored.printed(command)
    mirrored.give(rights)
    all_right = said_by(mirrored, command)
    assert "AUTHORIZATION_FAILED" not in text_of(all_right)
    assert {said.code for said in all_right} <= ({0, 4} if command == "drill" else {0}), text_of(all_right)
    for missing in rights:
        if missing.operation is AclOperation.CREATE:
            mirrored.at(missing.site, lambda cluster: delete_topics(cluster, [CANARY]))
        mirrored.give(right for right in rights if right != missing)
        said = said_by(mirrored, command)
        is_hidden = (command, missing.site, missing.name) in HIDES and missing.operation in (
            AclOperation.DESCRIBE,
            AclOperation.READ,
        )
        if is_hidden:
            assert not names(missing, text_of(said)), f"{missing} is said, and does not belong into HIDES"
        else:
            assert names(missing, text_of(said)), f"{command} without {missing}:\n{text_of(said)}"


def prepared(stage: RightsStage, link: str, number: int) -> Link:
    """A link with a topic to be made at the target, one to be grown, and its canary's -> as the limited user runs it."""
    topic, group = f"t{number}-", f"g{number}"
    stage.declare(link, f"{topic}.*", group)
    stage.fill(f"{topic}made", group)
    stage.fill(f"{topic}grown", group, max_message_bytes="300000")

    async def at_source(cluster: Cluster) -> None:
        await make_topic(cluster, f"__farshore-canary-{link}")
        await write(cluster, TopicPartition(f"__farshore-canary-{link}", 0), some_records(0, 3))

    async def at_target(cluster: Cluster) -> None:
        await make_topic(cluster, f"{topic}grown")
        await delete_topics(cluster, ["__farshore-producers"])

    stage.at("east", at_source)
    stage.at("west", at_target)
    return load(stage.files[LIMITED]).link(link)


def hides_from_mirror(right: Right, number: int) -> bool:
    return (
        right.site == "east"
        and right.name in (f"t{number}-", f"__farshore-canary-l{number}", f"g{number}")
        and (right.operation in (AclOperation.READ, AclOperation.DESCRIBE))
    )


async def runs_with_all(link: Link) -> None:
    told = Told()
    async with running(link, told=told), Cluster(link.target) as target:
        await told.wait_for(Event.CONFIG_APPLIED)
        await told.wait_for(Event.GROUP_SYNCED)
        assert "t0-made" in await list_topics(target)
    assert "AUTHORIZATION_FAILED" not in str(told.events)


async def says(link: Link, missing: Right) -> None:
    told = Told()

    async def is_said() -> bool:
        return names(missing, str(told.events))

    async with running(link, told=told):
        await eventually(is_said, f"the mirror to say that it lacks {missing}", 30.0)


def test_the_mirror_runs_with_its_rights_and_says_which_is_missing(stage: RightsStage) -> None:
    link = prepared(stage, "l0", 0)
    every = stage.printed("mirror run")
    stage.give(every)
    asyncio.run(runs_with_all(link))
    for number in range(1, len(every) + 1):
        link = prepared(stage, f"l{number}", number)
        rights = stage.printed("mirror run")
        missing = rights[number - 1]
        stage.give(right for right in rights if right != missing)
        if not hides_from_mirror(missing, number):
            asyncio.run(says(link, missing))
