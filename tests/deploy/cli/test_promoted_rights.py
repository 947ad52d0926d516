"""The rights that `status` needs of a link whose target took over: it reads who wrote at both sites since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.wire.vocabulary import AclOperation, AclPattern, AclResource, TopicPartition
from deploy.config import load
from mirror.offsets.operations import promote_link
from tests.deploy.cli.rights_stage import Right, RightsStage
from tests.interop.locked import USER, AuthorizingBroker
from tests.mirror.harness import some_records, write

TOPIC, GROUP = "flights", "analysts"


@pytest.fixture
def promoted(tmp_path: Path) -> Iterator[RightsStage]:
    """Both sites were written to since."""
    with AuthorizingBroker(tmp_path / "east") as east, AuthorizingBroker(tmp_path / "west") as west:
        stage = RightsStage(tmp_path, east, west)
        stage.declare("east-west", TOPIC, GROUP)
        stage.fill(TOPIC, GROUP)
        with stage.mirror():
            stage.await_mirrored()
        link = load(stage.files[USER]).link("east-west")

        async def write_one(cluster: Cluster) -> None:
            await write(cluster, TopicPartition(TOPIC, 0), some_records(9_000, 3))

        stage.at("west", lambda cluster: promote_link(link, cluster, "failover-1"))
        stage.at("east", write_one)
        stage.at("west", write_one)
        yield stage


def test_with_what_is_printed_and_what_the_page_adds_it_reads_who_wrote_and_else_says_so(promoted: RightsStage) -> None:
    rights = promoted.printed("status")
    of_producers = (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS)
    added = [on_topic(site, one, "__farshore-producers") for site in ("east", "west") for one in of_producers]
    added.append(on_topic("west", AclOperation.READ, "__farshore-ends-east-west"))
    promoted.give([*rights, *added])
    said = promoted.run("status -o json")
    assert [line for line in said.out.splitlines() if "AUTHORIZATION_FAILED" in line] == []
    (found,) = json.loads(said.out)["items"]
    assert (len(found["split"]["at_source"]), found["split"]["not_read"]) == (1, [])
    less = [
        right._replace(operation=AclOperation.DESCRIBE) if right.site == "east" and right.name == TOPIC else right
        for right in rights
    ]
    promoted.give([*less, *added])
    assert "TOPIC_AUTHORIZATION_FAILED" in promoted.run("status -o json").out


def on_topic(site: str, operation: AclOperation, name: str) -> Right:
    return Right(site, operation, AclResource.TOPIC, name, AclPattern.LITERAL)
