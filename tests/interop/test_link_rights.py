"""At Apache Kafka 3.9 and 4.3, both with their StandardAuthorizer: what `farshore link rights` prints is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.client.topics import list_topics
from broker.wire.vocabulary import CLUSTER_NAME
from tests.deploy.cli.rights_stage import KAFKAS, LIMITED, Pair, RightsStage, rights_stage
from tests.deploy.cli.test_link_rights import LINES, TOPIC, needs_what_is_printed
from tests.interop.servers import wait_until
from tests.mirror.harness import make_topic

OF_EACH = [command for command in LINES if not command.startswith("site")]
"""Kafka's have no roles."""
QUICK = [command for command in OF_EACH if not command.startswith(("cluster", "acls"))]


class Tried(NamedTuple):
    pair: Pair
    commands: Collection[str]


TRIED = [
    pytest.param(Tried(KAFKAS["3.9 to 4.3"], QUICK), id="3.9 to 4.3"),
    *(pytest.param(Tried(pair, OF_EACH), id=f"{which}, all", marks=pytest.mark.slow) for which, pair in KAFKAS.items()),
]


@pytest.fixture(params=TRIED)
def tried(request: pytest.FixtureRequest) -> Tried:
    assert isinstance(request.param, Tried)
    return request.param


@pytest.fixture
def stage(tried: Tried, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsStage]:
    """What is mirrored was mirrored with a mirror's rights alone; then it goes on with all."""
    with rights_stage(tmp_path_factory.mktemp("rights"), tried.pair) as stage:
        stage.declare("east-west", "flights", "analysts")
        stage.fill("flights", "analysts")
        stage.at("east", lambda cluster: make_topic(cluster, "__farshore-canary-east-west"))
        stage.give(stage.printed("mirror run"))
        with stage.mirror(LIMITED) as log:
            stage.await_mirrored()
            assert "AUTHORIZATION_FAILED" not in log.read_text()
        with stage.mirror():
            wait_until(lambda: "event=started" in log.read_text(), 60, "the mirror to go on")
            yield stage


def test_commands_and_a_switchover_need_what_is_printed_for_each(tried: Tried, stage: RightsStage) -> None:
    for command in tried.commands:
        needs_what_is_printed(stage, command)
    stage.give(stage.printed("switchover"))
    wait_until(lambda: stage.run("switchover --dry-run").code == 0, 60, "the switchover to be possible")
    moved = stage.run("switchover --yes")
    assert moved.code == 0, moved.err
    assert "AUTHORIZATION_FAILED" not in moved.out + moved.err


@pytest.mark.slow
def test_verify_counts_the_topics_on_disks_that_it_may_not_describe(tmp_path: Path) -> None:
    """At both versions: with all shown, with one topic shown, and with none; and nothing is wrong for that."""
    with rights_stage(tmp_path, KAFKAS["3.9 to 4.3"]) as stage:
        stage.declare("east-west", TOPIC, "analysts")
        stage.fill(TOPIC, "analysts")
        stage.at("west", lambda cluster: make_topic(cluster, TOPIC))
        stage.at("west", lambda cluster: make_topic(cluster, "of-others", 2))
        rights = stage.printed("cluster verify")
        every = [right._replace(name="*") if right.name == TOPIC else right for right in rights]
        of_cluster = [right for right in rights if right.name == CLUSTER_NAME]
        for site in ("east", "west"):
            names = stage.at(site, list_topics).keys()
            assert {TOPIC, "of-others" if site == "west" else "__consumer_offsets"} <= names
            for given, hidden in ((every, 0), (rights, len(names) - 1), (of_cluster, len(names))):
                stage.give(given)
                found = stage.json(f"cluster verify --site {site}", LIMITED)
                assert (found["items"], found["topics_passed_over"]) == ([], hidden), site
