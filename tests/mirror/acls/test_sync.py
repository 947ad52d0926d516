"""ACLs between two brokers of ours that ask everybody for his rights: by hand, by a worker, and at a promotion."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from broker.access.users import new_credentials, write_users
from broker.client.acl_bindings import Acl, create_acls, delete_acls, describe_acls
from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.log import append
from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.client.topics import delete_topics
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import AclResource, TopicPartition
from mirror.acls.carrying import KINDS
from mirror.acls.plan import AclPlan
from mirror.acls.record import AclRecord, RecordEntry, held_entries, made_entries
from mirror.acls.sync import AclChanges, apply_acls, look_at_acls, read_record, sync_acls
from mirror.link import Link
from mirror.worker.events import Event
from mirror.worker.limits import WorkerLimits
from tests.broker.running import running_server
from tests.mirror.acls.acls import ALL, DESCRIBE, DESCRIBE_CONFIGS, READ, WRITE, allow, deny, of_group, prefixed
from tests.mirror.harness import (
    Told,
    eventually,
    link_between,
    make_topic,
    running,
    some_records,
    wait_for_records,
    write,
)

TOPIC = "orders"
QUICK = WorkerLimits(acl_sync_interval_ms=50, config_apply_after_ms=50)


@dataclass
class Sites:
    link: Link
    source: Cluster
    target: Cluster

    async def at_target(self) -> set[Acl]:
        return {*await describe_acls(self.target, KINDS)}

    async def plan(self, *, promoted: bool = False, rebuilt: bool = False) -> AclPlan:
        seen = await look_at_acls(self.link, self.source, self.target, promoted=promoted, rebuilt=rebuilt)
        return seen.plan

    async def apply(self, *, promoted: bool = False, remove: bool = False, lost: bool = False) -> AclChanges:
        source = None if lost else self.source
        seen = await look_at_acls(self.link, source, self.target, promoted=promoted)
        return await apply_acls(self.link, self.target, seen, seen.plan.create, remove=remove)


async def between(stack: AsyncExitStack, folder: Path, **target: Any) -> Sites:
    """`target`: what its broker has otherwise."""
    (folder / "secret").write_text("canary-secret-7Qw")
    users = folder / "users.json"
    write_users(users, {"farshore": new_credentials("canary-secret-7Qw")})
    security = Security(None, Sasl(Mechanism.PLAIN, "farshore", Secret(file=folder / "secret")))
    common: dict[str, Any] = {
        "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
        "sasl_enabled_mechanisms": ("PLAIN",),
        "sasl_users_file": users,
        "authorizer_enable": True,
        "super_users": ("User:farshore",),
    }
    east, west = [
        await stack.enter_async_context(running_server(folder / name, **{**common, **more}))
        for name, more in (("east", {}), ("west", target))
    ]
    link = link_between(east.address, west.address, [TOPIC], name="east-west", groups=("g-.*",), sync_acls=True)
    link = replace(link, source=replace(link.source, security=security), target=replace(link.target, security=security))
    source, target_cluster = [await stack.enter_async_context(Cluster(one)) for one in (link.source, link.target)]
    for cluster in (source, target_cluster):
        await make_topic(cluster, TOPIC)
    await make_topic(target_cluster, "wages")
    return Sites(link, source, target_cluster)


@pytest.fixture
async def sites(tmp_path: Path) -> AsyncIterator[Sites]:
    async with AsyncExitStack() as stack:
        yield await between(stack, tmp_path)


async def make(cluster: Cluster, *acls: Acl) -> None:
    assert not await create_acls(cluster, acls)


def changed(acls: Iterable[Acl]) -> set[str]:
    return {str(acl) for acl in acls}


async def test_by_hand(sites: Sites) -> None:
    await make(sites.source, allow("app", ALL, TOPIC), deny("eve", READ, "*"), of_group(allow("app", READ, "g-1")))
    await make(sites.source, prefixed(allow("app", READ, "o")), allow("hr", READ, "wages"))
    changes = await sites.apply()
    reading = {allow("app", operation, TOPIC) for operation in (READ, DESCRIBE, DESCRIBE_CONFIGS)}
    assert await sites.at_target() == {*reading, deny("eve", READ, TOPIC), of_group(allow("app", READ, "g-1"))}
    assert changes.created[0] == deny("eve", READ, TOPIC)
    again = await sites.plan()
    assert (again.create, again.hold, again.remove, again.in_place) == ((), (allow("app", ALL, TOPIC),), (), 5)


async def test_the_right_to_write_comes_with_the_promotion_also_when_the_source_is_lost(sites: Sites) -> None:
    held = allow("app", WRITE, TOPIC)
    await make(sites.source, held)
    assert (await sites.apply()).created == ()
    assert held not in await sites.at_target()
    assert (await sites.apply(lost=True)).created == ()
    assert (await sites.apply(promoted=True, lost=True)).created == (held,)
    assert await sites.at_target() == {held}
    standing_by = await sites.plan()
    assert standing_by.held_again == (held,)
    assert (await sites.apply(remove=True)).removed == (held,)
    assert await sites.at_target() == set()
    assert (await sites.plan()).hold == (held,)
    assert (await sites.apply(promoted=True, lost=True)).created == (held,)


async def test_a_right_is_not_given_without_its_denial_when_the_source_is_lost(sites: Sites) -> None:
    """A denial that could not be made while the target stood by is made before what it speaks of, or nothing is."""
    denial, held = deny("app", WRITE, TOPIC, host="10.0.0.7"), allow("app", WRITE, TOPIC)
    await make(sites.source, denial, held)
    await sync_acls(sites.link, sites.source, sites.target, frozenset(), shut_out=[denial])
    assert await sites.at_target() == set()
    assert (await sites.apply(promoted=True, lost=True)).created == (denial, held)
    assert await sites.at_target() == {denial, held}


async def test_what_somebody_gave_by_hand_is_held_no_more(sites: Sites) -> None:
    """Else `status` had something to do about it for ever, and the command that it names had not."""
    by_hand, given = allow("by-hand", WRITE, TOPIC), allow("given", WRITE, TOPIC)
    await make(sites.source, by_hand, given)
    await sites.apply()
    await make(sites.target, by_hand)
    assert (await sites.apply(promoted=True)).created == (given,)
    record = await read_record(sites.link, sites.target)
    assert not record.held - record.made
    assert record.made == {given}


async def test_what_a_broker_that_is_behind_does_not_show_yet_stays_the_links(sites: Sites) -> None:
    """It would be kept for ever when the source takes it away, and the link back would bring it home."""
    mine = allow("app", READ, TOPIC)
    await make(sites.source, mine)
    await sites.apply()
    await delete_acls(sites.target, [mine])  # as one broker sees it that has not heard of it
    await sync_acls(sites.link, sites.source, sites.target, shown_before=frozenset())
    assert (await read_record(sites.link, sites.target)).made == {mine}


async def test_only_what_the_link_made_is_ever_removed(sites: Sites) -> None:
    mine, others = allow("app", READ, TOPIC), allow("local", READ, TOPIC)
    await make(sites.source, mine)
    await make(sites.target, others)
    await sites.apply()
    await delete_acls(sites.source, [mine])
    plan = await sites.plan()
    assert (plan.remove, plan.keep) == ((mine,), (others,))
    assert (await sites.apply()).removed == ()
    assert (await sites.apply(remove=True)).removed == (mine,)
    assert await sites.at_target() == {others}
    assert (await read_record(sites.link, sites.target)).made == frozenset()


FORGED = [
    allow("mallory", ALL, "kafka-cluster", kind=AclResource.CLUSTER),
    allow("mallory", ALL, "*", kind=AclResource.TRANSACTIONAL_ID),
    allow("mallory", ALL, "*"),
    prefixed(allow("mallory", ALL, "o")),
    allow("mallory", ALL, "wages"),
    allow("mallory", ALL, "__farshore-acls-east-west"),
    of_group(allow("mallory", ALL, "*")),
    of_group(allow("mallory", ALL, "other")),
]


async def forge(sites: Sites, *entries: RecordEntry) -> None:
    """By somebody who may write to the record's topic."""
    batch = encode_batch([Record(n, 0, *entry) for n, entry in enumerate(entries)])
    await append(sites.target, TopicPartition(sites.link.acls_topic, 0), batch)


async def test_whoever_may_write_to_the_record_gets_no_rights_beyond_what_the_link_carries(sites: Sites) -> None:
    """With Write on that one topic he had himself given all rights on the cluster at the next promotion."""
    held = allow("app", WRITE, TOPIC)
    await make(sites.source, held)
    await sites.apply()
    await forge(sites, *held_entries(frozenset(FORGED), AclRecord(), 0))
    for lost in (True, False):
        assert (await sites.apply(promoted=True, lost=lost)).created == ((held,) if lost else ())
    assert (await read_record(sites.link, sites.target)).beyond == {*FORGED}


async def test_nor_does_he_have_taken_away_what_others_denied_elsewhere(sites: Sites) -> None:
    denials = [deny("mallory", READ, "wages"), deny("mallory", READ, "*"), of_group(deny("mallory", READ, "other"))]
    await make(sites.source, allow("app", READ, TOPIC))
    await make(sites.target, *denials)
    await sites.apply()
    await forge(sites, *made_entries(denials, 0))
    before = await sites.at_target()
    assert (await sites.apply(remove=True)).removed == ()
    assert await sites.at_target() == before > {*denials}
    assert (await read_record(sites.link, sites.target)).beyond == frozenset()


async def test_without_its_record_the_link_does_not_know_what_it_made(sites: Sites) -> None:
    mine = allow("app", READ, TOPIC)
    await make(sites.source, mine)
    await sites.apply()
    await delete_acls(sites.source, [mine])
    rubbish = encode_batch([Record(0, 0, b"rubbish", b"rubbish")])
    await append(sites.target, TopicPartition(sites.link.acls_topic, 0), rubbish)
    assert (await sites.apply(remove=True)).removed == ()
    await delete_topics(sites.target, [sites.link.acls_topic])
    plan = await sites.plan()
    assert (plan.remove, plan.keep_unknown) == ((), (mine,))


async def test_what_a_link_brought_the_link_back_does_not_bring_home(sites: Sites) -> None:
    """Else a right that is taken away at its own site would come back from the other one."""
    mine = allow("app", READ, TOPIC)
    await make(sites.source, mine)
    await sites.apply()
    back = replace(sites.link, name="west-east", source=sites.link.target, target=sites.link.source)
    back = replace(back, reverse_links=(sites.link,))
    turned = Sites(back, sites.target, sites.source)
    await delete_acls(sites.source, [mine])
    assert (await turned.plan()).create == ()
    assert (await turned.plan(rebuilt=True)).create == (mine,)


async def test_nor_where_that_link_was_narrowed_since(sites: Sites) -> None:
    """A right that was revoked at its own site came back from the other one."""
    mine = allow("app", READ, TOPIC)
    await make(sites.source, mine)
    await sites.apply()
    await delete_acls(sites.source, [mine])
    narrowed = replace(sites.link, topics=("wages",))
    back = replace(sites.link, name="west-east", source=sites.link.target, target=sites.link.source)
    turned = Sites(replace(back, reverse_links=(narrowed,)), sites.target, sites.source)
    assert (await turned.plan()).create == ()
    assert (await turned.plan(rebuilt=True)).create == (mine,)


async def test_a_worker_carries_them_while_records_flow(sites: Sites) -> None:
    await make(sites.source, allow("app", READ, TOPIC), deny("eve", READ, TOPIC), allow("app", WRITE, TOPIC))
    told = Told()
    async with running(sites.link, told=told, limits=QUICK):

        async def are_there() -> bool:
            return await sites.at_target() == {allow("app", READ, TOPIC), deny("eve", READ, TOPIC)}

        await eventually(are_there, "the ACLs to be carried over")
        await told.wait_for(Event.ACL_CREATED, 2)
    assert [fields["acl"] for fields in told.of(Event.ACL_CREATED)] == [
        str(deny("eve", READ, TOPIC)),
        str(allow("app", READ, TOPIC)),
    ]
    record = await read_record(sites.link, sites.target)
    assert record.held == {allow("app", WRITE, TOPIC)}


async def test_a_site_without_an_authorizer_is_told_and_holds_up_no_record(sites: Sites, tmp_path: Path) -> None:
    async with running_server(tmp_path / "north") as north:
        link = link_between("", north.address, [TOPIC], name="east-north", sync_acls=True)
        link = replace(link, source=sites.link.source)
        told = Told()
        async with running(link, told=told, limits=QUICK), Cluster(link.target) as target:
            await told.wait_for(Event.ACLS_FAILED)
            await write(sites.source, TopicPartition(TOPIC, 0), some_records(0, 10))
            await wait_for_records(target, TopicPartition(TOPIC, 0), 10)

            async def is_said() -> bool:
                look = (await read_record(link, target)).look
                return look is not None and "SECURITY_DISABLED" in look.trouble and "sync_acls" in look.hint

            await eventually(is_said, "the trouble to be written down")
        assert told.count(Event.RESTARTING) == 0
        with pytest.raises(KafkaError) as refused:
            async with Cluster(link.target) as target, Cluster(link.source) as source:
                await look_at_acls(link, source, target, promoted=False)
        assert refused.value.code is ErrorCode.SECURITY_DISABLED


async def test_what_would_shut_out_the_mirror_is_taken_back_and_not_tried_again(tmp_path: Path) -> None:
    """Where a cluster allows all that no ACL is about, the first one about a topic closes it to everybody else."""
    everybody = {"allow_everyone_if_no_acl_found": True, "super_users": ("User:root",)}
    async with AsyncExitStack() as stack:
        sites = await between(stack, tmp_path, **everybody)
        await make(sites.source, allow("app", READ, TOPIC), of_group(allow("app", READ, "g-1")))
        seen = await look_at_acls(sites.link, sites.source, sites.target, promoted=False)
        changes = await apply_acls(sites.link, sites.target, seen, seen.plan.create, remove=False)
        [(acl, error)] = changes.failures
        assert acl == allow("app", READ, TOPIC)
        assert "may not write to orders" in str(error)
        assert await sites.at_target() == {of_group(allow("app", READ, "g-1"))}
        assert (await read_record(sites.link, sites.target)).made == await sites.at_target()
        told = Told()
        async with running(sites.link, told=told, limits=QUICK):
            await told.wait_for(Event.ACLS_FAILED)
            await write(sites.source, TopicPartition(TOPIC, 0), some_records(0, 10))
            await wait_for_records(sites.target, TopicPartition(TOPIC, 0), 10)

            async def is_counted() -> bool:
                look = (await read_record(sites.link, sites.target)).look
                return look is not None and look.failed == 1 and "may not write to orders" in look.failure

            await eventually(is_counted, "the failure to be written down")
        assert await sites.at_target() == {of_group(allow("app", READ, "g-1"))}


async def test_who_may_see_acls_and_not_make_them_is_told_so_and_mirrors_on(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        everybody = {"allow_everyone_if_no_acl_found": True, "super_users": ("User:root",)}
        sites = await between(stack, tmp_path, **everybody)
        await make(sites.target, allow("farshore", DESCRIBE, "kafka-cluster", kind=AclResource.CLUSTER))
        await make(sites.source, deny("eve", READ, TOPIC), allow("app", READ, TOPIC))
        async with running(sites.link, limits=QUICK) as told:
            await told.wait_for(Event.ACLS_FAILED)
            await write(sites.source, TopicPartition(TOPIC, 0), some_records(0, 10))
            await wait_for_records(sites.target, TopicPartition(TOPIC, 0), 10)

            async def is_counted() -> bool:
                look = (await read_record(sites.link, sites.target)).look
                return look is not None and look.failed == 1 and "CLUSTER_AUTHORIZATION_FAILED" in look.failure

            await eventually(is_counted, "the missing right to be written down")
        assert await sites.at_target() == set(), "nothing is allowed without its denial"
        assert (await read_record(sites.link, sites.target)).made == frozenset()
        assert told.count(Event.RESTARTING) == 0
