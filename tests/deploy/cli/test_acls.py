"""`farshore acls` between two sites that ask for rights: shown, carried by a mirror, held back, and given by a move."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.acl_bindings import Acl, create_acls, describe_acls
from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.log import append
from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import AclOperation, AclResource, TopicPartition
from deploy.cli.acls import apply_seen
from deploy.cli.terminal import CommandRefused, ExitCode
from deploy.config import load
from mirror.acls.carrying import KINDS
from mirror.acls.record import AclRecord, held_entries, made_entries
from mirror.acls.sync import look_at_acls
from tests.deploy.cli.rights_stage import LIMITED, Right, RightsStage
from tests.interop.locked import USER, AuthorizingBroker
from tests.interop.servers import wait_until
from tests.mirror.acls.acls import ALL, READ, WRITE, allow, deny, of_group, prefixed
from tests.mirror.harness import make_topic

TOPIC, GROUP, SHOP = "orders", "readers", "shop"
AT_SOURCE = (
    allow(SHOP, WRITE, TOPIC),
    allow("reader", ALL, "*"),
    deny("eve", READ, "ord", host="10.0.0.7"),
    prefixed(deny("eve", READ, "or")),
    of_group(allow("reader", READ, GROUP)),
    allow("hr", READ, "wages"),
)
NOT_ALLOWED = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""To who may not describe it a topic is not there."""
CARRIED = {"User:shop", "User:reader", "User:eve", "User:hr"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[RightsStage]:
    with AuthorizingBroker(tmp_path / "east") as east, AuthorizingBroker(tmp_path / "west") as west:
        yield RightsStage(tmp_path, east, west)


def prepare(stage: RightsStage) -> None:
    """A link that carries ACLs, and what its source has."""
    stage.declare("east-west", TOPIC, GROUP)
    for file in stage.files.values():
        file.write_text(file.read_text() + "sync_acls = true\n")
    stage.fill(TOPIC, GROUP)

    async def make(cluster: Cluster) -> None:
        assert not await create_acls(cluster, AT_SOURCE)

    stage.at("east", make)


def acls_at(stage: RightsStage, site: str) -> set[Acl]:
    """Of those whose ACLs this is about: farshore's own user has some, too."""

    async def look(cluster: Cluster) -> set[Acl]:
        return {acl for acl in await describe_acls(cluster, KINDS) if acl.principal in CARRIED}

    return stage.at(site, look)


def steps(stage: RightsStage, line: str = "acls plan") -> dict[str, set[tuple[str, str, str, str]]]:
    found: dict[str, set[tuple[str, str, str, str]]] = {}
    for line_of in stage.json(line)["acls"]:
        if line_of["principal"] in CARRIED:
            words = line_of["permission"], line_of["principal"], line_of["operation"], line_of["name"]
            found.setdefault(line_of["step"], set()).add(words)
    return found


def may_write(stage: RightsStage, site: str) -> bool:
    """Whether the shop may, at a site that asks it."""

    async def run(_: Cluster) -> bool:
        server = stage.east if site == "east" else stage.west
        login = Sasl(Mechanism.PLAIN, SHOP, Secret(file=stage.folder / "password"))
        async with Cluster(Site(site, server.at("WORDS"), security=Security(None, login))) as cluster:
            try:
                await append(cluster, TopicPartition(TOPIC, 0), encode_batch([Record(0, 0, None, b"of the shop")]))
            except KafkaError as error:
                if error.code not in NOT_ALLOWED:
                    raise
                return False
            return True

    return stage.at(site, run)


def goes_from_standby_to_promotion_and_back(stage: RightsStage) -> None:
    """All of a link's life; what is at the sites may be anybody's brokers."""
    rights = stage.printed("mirror run", "status")
    needed = {str(right) for right in rights}
    assert {"east: DESCRIBE CLUSTER kafka-cluster", "west: ALTER CLUSTER kafka-cluster"} <= needed
    on_source = Right("east", AclOperation.DESCRIBE, AclResource.CLUSTER, "kafka-cluster", rights[0].pattern)
    without = [right for right in rights if str(right) != str(on_source)]
    stage.give(without)
    with stage.mirror(LIMITED) as log:
        wait_until(lambda: "event=acls_failed" in log.read_text(), 60, "the missing right to be told")
        stage.await_mirrored()
        wait_until(lambda: bool(findings(stage)), 60, "the missing right to be a finding")
    [(kind, detail)] = findings(stage)
    assert kind == "acls_not_seen"
    assert "CLUSTER_AUTHORIZATION_FAILED" in detail
    assert acls_at(stage, "west") == set()
    stage.give(rights)
    planned = steps(stage)
    assert planned == {
        "create": {
            ("deny", "User:eve", "Read", TOPIC),
            ("allow", "User:reader", "Read", TOPIC),
            ("allow", "User:reader", "Describe", TOPIC),
            ("allow", "User:reader", "DescribeConfigs", TOPIC),
            ("allow", "User:reader", "Read", GROUP),
        },
        "hold": {("allow", "User:shop", "Write", TOPIC), ("allow", "User:reader", "All", TOPIC)},
    }
    with stage.mirror(LIMITED) as log:
        wait_until(lambda: "event=acl_drift" in log.read_text(), 60, "the worker to show what it will make")
        assert stage.run("acls apply --yes").code == ExitCode.DONE
        wait_until(lambda: findings(stage) == [], 60, "nothing to be left to decide")
        assert steps(stage).keys() == {"hold"}
        assert not may_write(stage, "west")
        refused = stage.run("acls apply --promote --yes")
        assert (refused.code, "west has not taken over" in refused.err) == (ExitCode.REFUSED, True)
        moved = stage.run("switchover --yes", USER)
    assert moved.code == ExitCode.DONE, moved.err
    assert "farshore acls apply --link east-west --promote" in moved.err + moved.out
    assert [kind for kind, _ in findings(stage)] == ["acls_held"]
    assert stage.run("acls apply --yes").code == ExitCode.REFUSED
    given = stage.run("acls apply --promote --yes")
    assert given.code == ExitCode.DONE, given.err
    wait_until(lambda: may_write(stage, "west"), 60, "the shop to write")
    assert findings(stage) == []
    assert stage.run("link resume --stranded leave --yes", USER).code == ExitCode.DONE
    assert steps(stage)["remove"] == {("allow", "User:shop", "Write", TOPIC), ("allow", "User:reader", "All", TOPIC)}
    assert stage.run("acls apply --remove --yes").code == ExitCode.DONE
    wait_until(lambda: not may_write(stage, "west"), 60, "the shop to be kept out again")


def findings(stage: RightsStage) -> list[tuple[str, str]]:
    links = json.loads(stage.run("status -o json").out)
    return [
        (one["kind"], one["detail"])
        for link in links.get("items", links.get("links"))
        for one in link["findings"]
        if one["kind"].startswith("acls")
    ]


def test_from_standby_to_promotion_and_back(stage: RightsStage) -> None:
    prepare(stage)
    goes_from_standby_to_promotion_and_back(stage)


def test_when_the_source_is_lost_what_was_held_back_is_given_all_the_same(stage: RightsStage) -> None:
    prepare(stage)
    with stage.mirror():
        stage.await_mirrored()
        assert stage.run("acls apply --yes", USER).code == ExitCode.DONE
    stage.east.stop()
    moved = stage.run("failover --allow-data-loss --yes", USER)
    assert moved.code in (ExitCode.DONE, ExitCode.FINDINGS), moved.err
    assert not may_write(stage, "west")
    shown = stage.run("acls apply --promote --dry-run", USER)
    assert (shown.code, "does not answer" in shown.err) == (ExitCode.DONE, True)
    assert stage.run("acls apply --promote --yes", USER).code == ExitCode.DONE
    assert may_write(stage, "west")
    assert allow("reader", ALL, TOPIC) in acls_at(stage, "west")


def test_nothing_is_changed_without_consent_and_what_is_shown_is_what_is_done(stage: RightsStage) -> None:
    prepare(stage)
    stage.at("west", lambda cluster: make_topic(cluster, TOPIC))
    shown = stage.run("acls plan", USER)
    assert shown.code == ExitCode.DONE
    assert "at west only for what the link carries" in " ".join(shown.err.split())
    assert stage.run("acls apply", USER).code == ExitCode.REFUSED
    assert stage.run("acls apply --dry-run", USER).code == ExitCode.DONE
    assert acls_at(stage, "west") == set()


def test_what_the_record_has_beyond_the_link_is_told_until_it_is_taken_out(stage: RightsStage) -> None:
    prepare(stage)
    stage.at("west", lambda cluster: make_topic(cluster, TOPIC))
    assert stage.run("acls apply --yes", USER).code == ExitCode.DONE
    carried, forged = acls_at(stage, "west"), allow("mallory", ALL, "wages")

    async def forge(cluster: Cluster) -> None:
        entries = [*made_entries([forged], 0), *held_entries(frozenset({forged}), AclRecord(), 0)]
        batch = encode_batch([Record(n, 0, *entry) for n, entry in enumerate(entries)])
        await append(cluster, TopicPartition("__farshore-acls-east-west", 0), batch)

    stage.at("west", forge)
    assert stage.json("acls plan")["record_beyond"] == [str(forged)]
    noted = " ".join(stage.run("acls plan", USER).err.split())
    assert "has 1 ACLs of what the link does not carry" in noted
    assert "apply --link east-west --remove takes them out" in noted
    refused = stage.run("acls apply --remove", USER)
    assert (refused.code, str(forged) in " ".join(refused.err.split())) == (ExitCode.REFUSED, True)
    assert stage.json("acls plan")["record_beyond"] == [str(forged)]
    assert stage.run("acls apply --yes", USER).code == ExitCode.DONE
    done = json.loads(stage.run("acls apply --remove --yes -o json", USER).out)
    assert (done["created"], done["removed"], done["taken_out_of_record"]) == ([], [], [str(forged)])
    assert stage.json("acls plan")["record_beyond"] == []
    assert acls_at(stage, "west") == carried


def test_a_plan_of_before_a_move_is_not_done_behind_it(stage: RightsStage) -> None:
    """The question may stand for hours: a yes to it gave rights to write at a target that stands by again."""
    prepare(stage)
    stage.at("west", lambda cluster: make_topic(cluster, TOPIC))
    link = load(stage.files[USER]).link("east-west")

    async def look_and_apply() -> None:
        async with Cluster(link.source) as east, Cluster(link.target) as west:
            seen = await look_at_acls(link, east, west, promoted=True)
        await apply_seen(link, seen, remove=False)

    with pytest.raises(CommandRefused) as refused:
        asyncio.run(look_and_apply())
    assert (refused.value.exit_code, "west stands by again" in str(refused.value)) == (ExitCode.REFUSED, True)
    assert acls_at(stage, "west") == set()


def test_a_right_that_is_missing_is_named(stage: RightsStage) -> None:
    prepare(stage)
    rights = stage.printed("mirror run")
    stage.give(rights)
    assert stage.run("acls apply --yes").code == ExitCode.DONE
    for missing in rights:
        if missing.resource is AclResource.CLUSTER:
            stage.give(right for right in rights if right != missing)
            said = stage.run("acls apply --remove --yes")
            assert said.code == ExitCode.ERROR, said
            assert "CLUSTER_AUTHORIZATION_FAILED" in said.err
            assert "farshore link rights" in said.err
            assert "that is user " in " ".join(said.err.split()), "the broker does not say whose right"


def test_without_the_key_the_link_needs_no_right_to_see_or_make_acls(stage: RightsStage) -> None:
    stage.declare("east-west", TOPIC, GROUP)
    told = {str(right) for right in stage.printed("mirror run", "status")}
    assert told.isdisjoint({"east: DESCRIBE CLUSTER kafka-cluster", "west: ALTER CLUSTER kafka-cluster"})
    assert not any("__farshore-acls" in line for line in told)


def test_users_that_the_target_lacks_are_named(stage: RightsStage) -> None:
    stage.declare("east-west", TOPIC, GROUP)

    async def make(cluster: Cluster) -> None:
        upsertions = [ScramCredentialUpsertion("buyer", 2, 8192, b"salt-of-it", b"x" * 64)]
        if cluster.site.name == "east":
            upsertions.append(ScramCredentialUpsertion("eve", 1, 4096, b"salt-of-it", b"x" * 32))
        connection = await cluster.any_connection()
        answer = await connection.request(AlterUserScramCredentialsRequest([], upsertions))
        assert not any(one.error_code for one in answer.results), answer

    for site in ("east", "west"):
        stage.at(site, make)
    said = stage.run("acls users -o json", USER)
    listed = {(one["user"], one["mechanism"], one["iterations_at_target"]) for one in json.loads(said.out)["items"]}
    assert {("eve", "SCRAM-SHA-256", None), ("buyer", "SCRAM-SHA-512", 8192)} <= listed
    assert "no cluster gives them away" in " ".join(said.err.split())
