"""Of a link whose target took over: with what `farshore link rights` prints commands on what is at both sites work, and
without any one of it they say which is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from broker.client.topics import delete_topics
from broker.wire.vocabulary import CLUSTER_NAME, AclOperation, TopicPartition
from deploy.config import load
from failover.losses.replayed import REPLAYS
from mirror.offsets.operations import promote_link
from tests.deploy.cli.rights_stage import LIMITED, PAIRS, Pair, RightsStage, names, rights_stage
from tests.deploy.cli.test_link_rights import CANARY, GROUP, TOPIC, text_of
from tests.interop.locked import USER, AuthorizingKafkaServer
from tests.mirror.harness import make_topic, some_records, write

BACK = f'''
[[links]]
name = "west-east"
source = "west"
target = "east"
topics = ["{TOPIC}"]
'''
OF_NO_CANARY = [f"west: READ TOPIC {CANARY}"]
OF_NO_CANARY_AND_BACK = [*OF_NO_CANARY, "west: DESCRIBE_CONFIGS TOPIC __farshore-producers"]


def promote(stage: RightsStage) -> None:
    """A link whose target took over, with a link back, and records that came to both sites since."""
    stage.declare("east-west", TOPIC, GROUP)
    stage.fill(TOPIC, GROUP)
    with stage.mirror():
        stage.await_mirrored()
    link = load(stage.files[USER]).link(None)
    for file in stage.files.values():
        file.write_text(f"{file.read_text()}{BACK}")
    stage.at("west", lambda target: promote_link(link, target, "failover-1"))
    stage.at("east", lambda source: make_topic(source, "__farshore-producers", cleanup_policy="compact"))
    stage.at("east", lambda source: make_topic(source, "__farshore-offsets-west-east", cleanup_policy="compact"))
    for site in ("east", "west"):
        stage.at(site, lambda cluster: write(cluster, TopicPartition(TOPIC, 0), some_records(70, 3)))


def untold_of(stage: RightsStage, command: str, lines: Callable[[], Iterator[str]]) -> list[str]:
    """It works with all that is printed for it -> those rights whose lack it does not name."""
    rights = stage.printed(command)
    stage.give(rights)
    for line in lines():
        said = stage.run(line)
        assert "AUTHORIZATION_FAILED" not in said.out + said.err
        assert said.code == (4 if command == "status" else 0), said.out + said.err
    untold = []
    for missing in rights:
        stage.give(right for right in rights if right != missing)
        if not names(missing, text_of([stage.run(line) for line in lines()])):
            untold.append(str(missing))
    return untold


@pytest.mark.parametrize("pair", PAIRS)
def test_commands_of_a_promoted_link_say_which_right_is_missing(pair: Pair, tmp_path: Path) -> None:
    """One after the other: each changes more of it."""
    with rights_stage(tmp_path, pair) as stage:
        promote(stage)
        status_says_it(stage)
        commands_on_stranded_records_say_it(stage)
        creation_says_it(stage)
        deletion_says_it(stage)


def status_says_it(stage: RightsStage) -> None:
    untold = untold_of(stage, "status", lambda: iter(("status --link east-west",)))
    stage.give(stage.printed("status"))
    found = stage.json("status --link east-west", LIMITED)["items"][0]["findings"]
    roles = set() if isinstance(stage.east, AuthorizingKafkaServer) else {"two_active"}
    assert {"split_brain", *roles} <= {finding["kind"] for finding in found}
    of_roles = [f"{site}: DESCRIBE_CONFIGS CLUSTER {CLUSTER_NAME}" for site in ("east", "west")]
    assert untold == of_roles, "who may not see a role is told of none"


def commands_on_stranded_records_say_it(stage: RightsStage) -> None:
    numbers = count()

    def exports() -> Iterator[str]:
        yield f"stranded export --link east-west --to {stage.folder}/export-{next(numbers)}"

    def leaves() -> Iterator[str]:
        """With something new to leave each time."""
        stage.at("east", lambda source: write(source, TopicPartition(TOPIC, 0), some_records(next(numbers) + 500, 1)))
        yield "stranded leave --link east-west --yes"

    def replays() -> Iterator[str]:
        stage.at("west", lambda target: delete_topics(target, [REPLAYS.topic]))
        for _ in range(2):  # what came by the first is read by the second
            yield f"stranded replay --link east-west --from {stage.folder}/export-0 --policy append --yes"

    untold = untold_of(stage, "stranded list", lambda: iter(("stranded list --link east-west",)))
    assert untold == OF_NO_CANARY_AND_BACK, "the link back never ran"
    assert untold_of(stage, "stranded export", exports) == OF_NO_CANARY
    assert untold_of(stage, "stranded leave", leaves) == OF_NO_CANARY_AND_BACK
    assert untold_of(stage, "stranded replay", replays) == []


def creation_says_it(stage: RightsStage) -> None:
    """Who may not describe it waited for half a minute until it was seen, and was told of no right."""
    rights = stage.printed("topic create")
    for missing in rights:
        line = f"topic create --site {missing.site} --topic {TOPIC}"
        stage.at(missing.site, lambda cluster: delete_topics(cluster, [TOPIC]))
        stage.give(right for right in rights if right != missing)
        begun_s = time.monotonic()
        assert names(missing, text_of([stage.run(line)]))
        assert time.monotonic() - begun_s < 15, "it is not waited for"
        stage.at(missing.site, lambda cluster: delete_topics(cluster, [TOPIC]))
        stage.give(rights)
        assert stage.run(line).code == 0


def deletion_says_it(stage: RightsStage) -> None:
    """Of the topics that the creation made."""
    rights = stage.printed("topic delete")
    assert [right.site for right in rights] == ["east", "west"]
    for missing in rights:
        line = f"topic delete --site {missing.site} --topic {TOPIC} --yes"
        stage.give([missing._replace(operation=AclOperation.DESCRIBE)])
        assert names(missing, text_of([stage.run(line)]))
        stage.give(rights)
        assert stage.run(line).code == 0
