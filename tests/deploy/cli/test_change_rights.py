"""Commands that change a link, a site or an operation: with what `farshore link rights` prints for them they work, and
without any one of it they say which is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.topics import delete_topics, list_topics
from broker.wire.messages.create_acls import CreateAclsRequest
from broker.wire.vocabulary import CLUSTER_NAME, AclOperation, AclPattern, AclResource, TopicPartition
from chaos.names import LINK_PREFIX, OWN_PREFIXES, topic_of
from deploy.config import load
from tests.chaos_runs.warm_commands import Said
from tests.deploy.cli.rights_stage import PAIRS, Pair, Right, RightsStage, names, rights_stage
from tests.deploy.cli.test_link_rights import CANARY, GROUP, TOPIC
from tests.deploy.cli.test_recorded_rights import hold
from tests.interop.locked import USER, AuthorizingKafkaServer
from tests.interop.servers import wait_until
from tests.mirror.harness import make_topic, some_records, write

ACLS = "__farshore-acls-east-west"
Before = Callable[[Right | None], None]
"""Of the right that is missing then."""


def untold_of(
    stage: RightsStage,
    command: str,
    line: str | Callable[[], str],
    before: Before,
    *,
    other_line: str = "",
    code: int = 0,
) -> tuple[list[str], list[str]]:
    """`before` each time: what makes that there is something to do. `other_line`: where a site is named, of the source.
    `code`: of whoever has all rights.

    -> rights whose lack is not named, and those of them without which it did all.
    """
    rights = stage.printed(command)
    lines = [one for one in (line, other_line) if one]

    def run(one: str | Callable[[], str]) -> Said:
        return stage.run(one if isinstance(one, str) else one())

    before(None)
    stage.give(rights)
    for each in lines:
        said = run(each)
        assert said.code == code, said.out + said.err
        assert not any(f"{right.resource.name}_AUTHORIZATION_FAILED" in said.out + said.err for right in rights)
    untold, done = [], []
    for missing in rights:
        before(missing)
        stage.give(right for right in rights if right != missing)
        said = run(other_line if other_line and missing.site == "east" else line)
        if not is_told(missing, said):
            untold.append(str(missing))
            done += [str(missing)] if said.code == 0 else []
    return untold, done


def is_told(missing: Right, said: Said) -> bool:
    """Whoever reads it sees that nothing was done, too: an operation says what cut it short before."""
    return said.code != 0 and names(missing, " ".join((said.out + said.err).split()))


def let_read(stage: RightsStage, who: str) -> None:
    """An ACL at the source that is to follow."""
    reading = Right("east", AclOperation.READ, AclResource.TOPIC, TOPIC, AclPattern.LITERAL)

    async def at_source(cluster: Cluster) -> None:
        connection = await cluster.any_connection()
        answer = await connection.request(CreateAclsRequest([reading.acl(f"User:{who}")]))
        assert not answer.results[0].error_code

    stage.at("east", at_source)


@pytest.mark.parametrize("pair", PAIRS)
def test_commands_that_change_a_link_say_which_right_is_missing(pair: Pair, tmp_path: Path) -> None:
    """One after the other."""
    with rights_stage(tmp_path, pair) as stage:
        stage.declare("east-west", TOPIC, GROUP)
        stage.fill(TOPIC, GROUP)
        stage.at("east", lambda cluster: make_topic(cluster, CANARY))
        with stage.mirror():
            stage.await_mirrored()
            operations_say_it(stage)
        opened(stage)
        retries_say_it(stage)
        cuts_say_it(stage)
        acls_say_it(stage)
        if not isinstance(stage.east, AuthorizingKafkaServer):  # which has no roles
            roles_say_it(stage)


def opened(stage: RightsStage) -> None:
    """Both sites take writes. Kafka's brokers know nothing else."""
    for site in ("east", "west"):
        stage.run(f"site thaw --site {site} --even-if-other-active --yes", USER)


def cut_short(stage: RightsStage) -> str:
    """A switchover without the right to fence, which goes on or is given up -> its id."""
    items = stage.json("operation list --open")["items"]
    if not items:
        opened(stage)  # an abort that may not open it leaves the source closed
        fence = (AclResource.TRANSACTIONAL_ID, "farshore-east-west")
        stage.give(one for one in stage.printed("switchover") if (one.resource, one.name) != fence)
        said = stage.run("switchover --yes")
        assert said.code == 1, said.out + said.err
        items = stage.json("operation list --open")["items"]
    (found,) = items
    return str(found["operation_id"])


def operations_say_it(stage: RightsStage) -> None:
    """A link has rights at both sites for an abort; there is no link back."""
    operation = cut_short(stage)
    assert untold_of(stage, "operation show", f"operation show {operation}", lambda _: None) == ([], [])
    rights = stage.printed("operation abort")
    untold = []
    for missing in rights:
        operation = cut_short(stage)
        stage.give(right for right in rights if right != missing)
        said = stage.run(f"operation abort {operation} --yes")
        if not is_told(missing, said):
            untold.append(f"{missing}: {said.code} {said.out} {said.err}")
    operation = cut_short(stage)
    stage.give(rights)
    said = stage.run(f"operation abort {operation} --yes")
    assert said.code == 0, said.out + said.err
    told = [one.partition(": 0 ")[0] for one in untold]
    of_roles = [f"{site}: ALTER_CONFIGS CLUSTER {CLUSTER_NAME}" for site in ("east", "west")]
    expected = [f"east: DESCRIBE TOPIC {TOPIC}", *(of_roles if isinstance(stage.east, AuthorizingKafkaServer) else ())]
    assert told == expected, "\n".join(untold)
    assert untold_of(stage, "operation wait", f"operation wait {operation}", lambda _: None, code=3) == ([], [])


def retries_say_it(stage: RightsStage) -> None:
    """Of a partition that is held, anew each time."""
    link = load(stage.files[USER]).link(None)

    def holds(_: Right | None) -> None:
        stage.at("west", lambda west: hold(link, west))

    assert untold_of(stage, "link retry", "link retry --link east-west --yes", holds) == ([], [])


def cuts_say_it(stage: RightsStage) -> None:
    """Into more units each time: the state's topic has as many partitions as there ever were units."""
    units = count(2)
    line = "link cut --link east-west --units {} --yes"
    assert untold_of(stage, "link cut", lambda: line.format(next(units)), lambda _: None) == ([], [])


def acls_say_it(stage: RightsStage) -> None:
    readers = count()

    def one_more(missing: Right | None) -> None:
        let_read(stage, f"reader-{next(readers)}")
        if missing is not None and missing.operation is AclOperation.CREATE:
            stage.at("west", lambda cluster: delete_topics(cluster, [ACLS]))

    untold, _ = untold_of(stage, "acls apply", "acls apply --link east-west --yes", one_more)
    assert untold == [f"{site}: DESCRIBE TOPIC {TOPIC}" for site in ("east", "west")], "hidden, as for `acls plan`"


def roles_say_it(stage: RightsStage) -> None:
    line = "site standby --site {} --yes"
    assert untold_of(
        stage, "site standby", line.format("west"), lambda _: opened(stage), other_line=line.format("east")
    ) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_what_a_killed_chaos_run_left_is_removed_with_all_rights_alone(pair: Pair, tmp_path: Path) -> None:
    """Each look takes fifteen seconds."""
    run = "0123abcd"
    left = {"east": [topic_of(run)], "west": [topic_of(run), *(f"{one}{LINK_PREFIX}{run}" for one in OWN_PREFIXES)]}
    with rights_stage(tmp_path, pair) as stage:
        stage.declare("east-west", TOPIC, GROUP)

        def leave() -> None:
            for site, topics in left.items():
                there = stage.at(site, list_topics)
                for name in {*topics} - there.keys():
                    stage.at(site, lambda cluster, name=name: make_topic(cluster, name))  # type: ignore[misc]

        rights = stage.printed("chaos clean")
        for missing in (None, *rights):
            leave()
            # Who may not even describe it sees nothing that was left.
            stage.give(one._replace(operation=AclOperation.DESCRIBE) if one == missing else one for one in rights)
            said = stage.run("chaos clean --yes")
            if missing is None:
                assert (said.code, "AUTHORIZATION_FAILED" in said.out + said.err) == (0, False), said.out + said.err
            else:
                assert is_told(missing, said), f"{missing}: {said.code} {said.out}{said.err}"


BACK = f"""
[[links]]
name = "west-east"
source = "west"
target = "east"
topics = ["{TOPIC}"]
groups = ["{GROUP}"]
"""
CHANGES = {AclOperation.WRITE, AclOperation.CREATE, AclOperation.ALTER_CONFIGS}
"""What only a failback that is carried out does."""
OF_THE_SWITCHOVER = [
    f"east: DESCRIBE_CONFIGS CLUSTER {CLUSTER_NAME}",
    *(f"{site}: DESCRIBE TOPIC __consumer_offsets" for site in ("east", "west")),
    "east: READ TOPIC __farshore-ends-west-east",
]
"""Along the link back: it has a plan of its own, when its turn comes."""
OF_WHAT_IS_NOT_THERE = [
    *(f"{site}: READ TOPIC __farshore-replays" for site in ("east", "west")),
    "east: READ TOPIC __farshore-operations",
    "east: READ TOPIC __farshore-canary-west-east",
]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_plan_to_come_back_says_which_right_is_missing(pair: Pair, tmp_path: Path) -> None:
    """Behind a failover, with records that came to both sites since, and a mirror that runs the link back."""
    with rights_stage(tmp_path, pair) as stage:
        stage.declare("east-west", TOPIC, GROUP)
        for file in stage.files.values():
            file.write_text(f"{file.read_text()}{BACK}")
        stage.fill(TOPIC, GROUP)
        stage.at("east", lambda cluster: make_topic(cluster, CANARY))
        with stage.mirror():
            wait_until(lambda: stage.run("switchover --link east-west --dry-run", USER).code == 0, 90, "a way over")
            moved = stage.run("failover --link east-west --yes --allow-data-loss --even-if-source-answers", USER)
            assert moved.code in (0, 4), moved.out + moved.err
            opened(stage)
            for site in ("east", "west"):
                stage.at(site, lambda cluster: write(cluster, TopicPartition(TOPIC, 0), some_records(70, 3)))
            line = f"failback --link east-west --export-to {tmp_path}/saved --dry-run"
            wait_until(lambda: stage.run(line, USER).code == 0, 90, "the link back")
            rights = stage.printed("failback")
            stage.give(rights)
            said = stage.run(line)
            assert (said.code, "AUTHORIZATION_FAILED" in said.out + said.err) == (0, False), said.out + said.err
            untold = []
            for missing in rights:
                stage.give(right for right in rights if right != missing)
                said = stage.run(line)
                if not names(missing, " ".join((said.out + said.err).split())):
                    untold.append(str(missing))
            changing = [str(right) for right in rights if right.operation in CHANGES]
            assert sorted(untold) == sorted([*changing, *OF_THE_SWITCHOVER, *OF_WHAT_IS_NOT_THERE])
