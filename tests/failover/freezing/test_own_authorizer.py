"""A switchover, and back, between brokers of ours that ask everybody for his rights: closed and opened by ACLs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.access.users import new_credentials, write_users
from broker.client.cluster import Cluster
from broker.client.limits import ClientLimits
from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.client.site import Site
from broker.server import Server
from broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from broker.wire.messages.describe_acls import DescribeAclsRequest
from broker.wire.vocabulary import AclOperation, AclPattern, AclPermission, AclResource
from tests.broker.running import running_server
from tests.failover.freezing.test_acl_freeze import ID, Shop, _is_movable, _reaches, switch
from tests.failover.machines import quick
from tests.failover.stage import GROUP, PARTITIONS, RECORDS, TOPIC, Stage, commit_group, mirrored
from tests.mirror.harness import eventually, link_between, make_topic, running, some_records, write

PASSWORD = "canary-secret-7Qw"
USERS = ("farshore", "shop", "batch")
ALLOW = AclPermission.ALLOW


@asynccontextmanager
async def authorizing(folder: Path, **settings: Any) -> AsyncIterator[Server]:
    folder.mkdir()
    users = folder / "users.json"
    write_users(users, {user: new_credentials(PASSWORD) for user in USERS})
    async with running_server(
        folder / "data",
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        sasl_enabled_mechanisms=("PLAIN",),
        sasl_users_file=users,
        authorizer_enable=True,
        super_users=("User:farshore",),
        **settings,
    ) as server:
        yield server


async def acls_of(cluster: Cluster) -> set[tuple[object, ...]]:
    answer = await (await cluster.any_connection()).request(DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    return {
        (at.resource_name, acl.principal, acl.operation, acl.permission_type)
        for at in answer.resources
        for acl in at.acls
    }


async def test_a_move_and_the_way_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    monkeypatch.setattr("broker.client.site_role.SITE_ROLE", "a config that no broker has")  # else it is frozen by that
    (tmp_path / "secret").write_text(PASSWORD)

    def site(name: str, server: Server, user: str = "farshore") -> Site:
        login = Sasl(Mechanism.PLAIN, user, Secret(file=tmp_path / "secret"))
        return Site(name, server.address, freeze_principals=("User:*",), security=Security(None, login))

    async with authorizing(tmp_path / "east") as east, authorizing(tmp_path / "west") as west:
        link = replace(link_between("", "", [TOPIC]), source=site("east", east), target=site("west", west))
        link = replace(link, groups=(GROUP,))
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await make_topic(source, TOPIC, len(PARTITIONS))
            for number, at in enumerate(PARTITIONS):
                await write(source, at, some_records(number * 1000, RECORDS))
            await commit_group(source, 20, 30)
            allowed = AclCreation(
                AclResource.TOPIC, TOPIC, AclPattern.LITERAL, "User:shop", "*", AclOperation.WRITE, ALLOW
            )
            await (await source.any_connection()).request(CreateAclsRequest([allowed]))
            before = await acls_of(source)
            stage = Stage(link, source, target, brokers=(east.broker, west.broker))
            limits = ClientLimits(retry_timeout_ms=1_000)
            async with (
                Cluster(site("east", east, "shop"), client_id="shop", limits=limits) as cluster,
                asyncio.TaskGroup() as tasks,
            ):
                shop = Shop(cluster, [])
                writing = tasks.create_task(shop.write())
                await eventually(lambda: _reaches(lambda: len(shop.acknowledged), 3), "the shop to write")
                async with mirrored(stage):
                    result = await switch(link)
                assert (result.verified, result.stranded) == (True, ()), (result.differences, result.stranded)
                written = len(shop.acknowledged)
                await eventually(lambda: _reaches(lambda: shop.refused, 3), "the shop to be refused")
                assert len(shop.acknowledged) == written
                made = {principal for _, principal, *_ in await acls_of(source) - before}
                assert made == {"User:*", f"User:farshore-freeze/{ID}/User:*"}
                back = replace(link, name="west-east", source=link.target, target=link.source)
                async with running(back):
                    await eventually(lambda: _is_movable(back), "the link back to be drained")
                    result = await switch(back, "switchover-west-east-1")
                assert (result.verified, result.stranded) == (True, ()), (result.differences, result.stranded)
                assert await acls_of(source) == before
                await eventually(
                    lambda: _reaches(lambda: len(shop.acknowledged), written + 3), "the shop to write again"
                )
                writing.cancel()
