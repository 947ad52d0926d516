"""A mirrored topic that its source hides from farshore (no `Describe`) may hold anything: nothing takes it for gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.topics import delete_topics
from broker.wire.vocabulary import CLUSTER_NAME, AclOperation, AclPattern, AclResource, TopicPartition
from deploy.config import load
from mirror.offsets.operations import promote_link
from tests.deploy.cli.rights_stage import Right, RightsStage
from tests.interop.locked import USER, AuthorizingBroker
from tests.mirror.harness import make_topic, some_records, write

TOPIC, GROUP, STRANDED = "flights", "analysts", 3
BACK = f"""
[[links]]
name = "west-east"
source = "west"
target = "east"
topics = ["{TOPIC}"]
"""
OF_RUNNING = ("switchover --link east-west --dry-run", "status --link east-west", "drill --link east-west")
OF_PROMOTED = (
    "status --link east-west",
    "stranded list --link east-west",
    "stranded export --link east-west --to {folder}/none",
    "stranded leave --link east-west --yes",
    "link resume --link east-west --stranded leave --yes",
    "failback --link east-west --dry-run",
)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[RightsStage]:
    with AuthorizingBroker(tmp_path / "east") as east, AuthorizingBroker(tmp_path / "west") as west:
        yield RightsStage(tmp_path, east, west)


def all_else() -> Iterator[Right]:
    """All that there is to be allowed, but for users' topics of the source."""
    for site in ("east", "west"):
        yield Right(site, AclOperation.ALL, AclResource.CLUSTER, CLUSTER_NAME, AclPattern.LITERAL)
        for resource in (AclResource.GROUP, AclResource.TRANSACTIONAL_ID):
            yield Right(site, AclOperation.ALL, resource, "*", AclPattern.LITERAL)
    yield Right("east", AclOperation.ALL, AclResource.TOPIC, "__", AclPattern.PREFIXED)
    yield Right("west", AclOperation.ALL, AclResource.TOPIC, "*", AclPattern.LITERAL)


def of(topic: str) -> Right:
    return Right("east", AclOperation.ALL, AclResource.TOPIC, topic, AclPattern.LITERAL)


def test_what_the_source_hides_is_not_known_and_what_is_gone_is_gone(stage: RightsStage) -> None:
    """`stranded list` said that the source had no record that the target lacks, and an export was empty."""
    stage.declare("east-west", TOPIC, GROUP)
    stage.fill(TOPIC, GROUP)
    with stage.mirror():
        stage.await_mirrored()
        says_that_it_is_hidden(stage, OF_RUNNING)
    link = load(stage.files[USER]).link(None)
    for file in stage.files.values():
        file.write_text(f"{file.read_text()}{BACK}")
    stage.at("west", lambda target: promote_link(link, target, "failover-1"))
    stage.at("east", lambda source: make_topic(source, "__farshore-producers", cleanup_policy="compact"))
    stage.at("east", lambda source: write(source, TopicPartition(TOPIC, 0), some_records(70, STRANDED)))
    says_that_it_is_hidden(stage, OF_PROMOTED)
    assert not (stage.folder / "none").exists()
    assert stage.json("stranded list --link east-west")["records"] == STRANDED, "nothing was decided"

    stage.at("east", lambda source: delete_topics(source, [TOPIC]))
    says_that_it_is_hidden(stage, OF_PROMOTED)
    stage.give([*all_else(), of(TOPIC)])
    told = stage.run("stranded list --link east-west")
    assert (told.code, "east has no record that west lacks" in told.out) == (0, True), told.err
    assert f"{TOPIC}-0: east has it no more" in " ".join(told.out.split())


def says_that_it_is_hidden(stage: RightsStage, lines: tuple[str, ...]) -> None:
    stage.give(all_else())
    for line in lines:
        said = stage.run(line.format(folder=stage.folder))
        text = said.out + said.err
        assert said.code != 0, f"{line}: {text}"
        assert "TOPIC_AUTHORIZATION_FAILED" in text, f"{line}: {text}"
        assert TOPIC in text, f"{line}: {text}"
