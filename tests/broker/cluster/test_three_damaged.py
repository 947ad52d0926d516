"""A replica whose files or disk fail while its broker runs: another one leads, and it is in sync again once mended."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

import pytest

from broker.log.disk import OsDisk
from broker.wire.buffers import Buffer
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.broker.cluster.test_three_replicas import NODES, create, ends, read_all
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.broker.wire_client import WireClient, batch_of

Finds = Callable[[Path, WireClient, pytest.MonkeyPatch], Awaitable[None]]
VALUES = [f"{number}" + "x" * 200 for number in range(4)]


async def loses_a_file(folder: Path, client: WireClient, patch: pytest.MonkeyPatch) -> None:
    os.truncate(min(folder.glob("*.log")), 10)
    assert (await client.fetch("t", 0, version=11)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def has_a_disk_that_fails(folder: Path, client: WireClient, patch: pytest.MonkeyPatch) -> None:
    write = OsDisk.pwrite

    def failing(self: OsDisk, fd: int, data: Buffer, position: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(str(folder)):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return write(self, fd, data, position)

    patch.setattr(OsDisk, "pwrite", failing)
    answer = await client.produce("t", batch_of("not acknowledged"), acks=1)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def begun(cluster: RunningCluster) -> int:
    """The leader of t, which has several segments at all replicas."""
    async with cluster.clients() as clients:
        await create(clients[1], "t", min_insync_replicas="2", segment_bytes="300")
        leader = await cluster.led("t")
        for value in VALUES:
            assert (await clients[leader].produce("t", batch_of(value))).error_code == 0
    await until(lambda: ends(cluster) == {(0, 4, 4)})
    return leader


@pytest.mark.parametrize("fails", [loses_a_file, has_a_disk_that_fails])
async def test_another_replica_leads_and_the_mended_one_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Finds
) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        broken = await begun(cluster)
        folder = tmp_path / str(broken) / "t-0"
        others = set(NODES) - {broken}
        async with cluster.clients() as clients:
            await fails(folder, clients[broken], monkeypatch)
            successor = await cluster.led("t", among=others)
            state = cluster.told("t")
            assert state is not None
            assert set(state.isr) == others
            assert (await clients[successor].produce("t", batch_of("more"))).error_code == 0
            assert await read_all(clients[successor]) == [*VALUES, "more"]
            refused = await clients[broken].produce("t", batch_of("not acknowledged"))
            assert refused.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await cluster.stop(broken)
        monkeypatch.undo()
        shutil.rmtree(folder)
        await cluster.start(broken)
        await until(lambda: (state := cluster.told("t")) is not None and set(state.isr) == set(NODES))
        await until(lambda: ends(cluster) == {(0, 5, 5)})


async def test_a_follower_whose_files_fail_is_out_of_sync_at_once(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        leader = await begun(cluster)
        broken = next(node for node in NODES if node != leader)
        here = cluster.broker(broken).partition("t", 0)
        assert here is not None
        os.truncate(min((tmp_path / str(broken) / "t-0").glob("*.log")), 10)
        with pytest.raises(Exception, match="holds 10 of"):
            here.log.read(0, 1000, up_to=4, at_least_one=True)
        await until(lambda: (state := cluster.told("t")) is not None and set(state.isr) == set(NODES) - {broken})


async def test_the_last_one_in_sync_stays_with_a_disk_that_fails_and_goes_on_when_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else has what it has."""
    async with running_cluster(tmp_path, *NODES) as cluster:
        leader = await begun(cluster)
        for other in set(NODES) - {leader}:
            await cluster.kill(other)
        await until(lambda: (state := cluster.told("t")) is not None and state.isr == (leader,))
        async with cluster.clients() as clients:
            client = clients[leader]
            with monkeypatch.context() as patch:
                await has_a_disk_that_fails(tmp_path / str(leader) / "t-0", client, patch)
                assert (await client.produce("t", batch_of("no"), acks=1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await client.produce("t", batch_of("yes"), acks=1)).error_code == 0
            assert await read_all(client) == [*VALUES, "yes"]


def fill_the_disks(patch: pytest.MonkeyPatch, folders: Collection[Path]) -> None:
    """Of partitions: nothing can be noted there any more."""
    write = OsDisk.write_file

    def full(self: OsDisk, path: Path, data: bytes, *, durable: bool) -> None:
        if path.parent in folders:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, path, data, durable=durable)

    patch.setattr(OsDisk, "write_file", full)


async def test_who_could_not_lead_for_a_full_disk_is_in_sync_again_when_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And stays so: it was taken for gone until its next start, and the leader found it in sync, over and over."""
    async with running_cluster(tmp_path, *NODES) as cluster:
        first = await begun(cluster)
        state = cluster.told("t")
        assert state is not None
        second = next(node for node in state.isr if node != first)
        with monkeypatch.context() as patch:
            fill_the_disks(patch, [tmp_path / str(second) / "t-0"])
            await cluster.kill(first)
            third = await cluster.led("t", among=set(NODES) - {first, second})
        await until(lambda: (state := cluster.told("t")) is not None and set(state.isr) == {second, third})
        state = cluster.told("t")
        assert state is not None
        async with cluster.clients() as clients:
            for name in ("another", "one-more"):  # behind that the controller has heard of all that was before
                request = CreateTopicsRequest([CreatableTopic(name, 1, 2)])
                made = await clients[third].ask(request, 7, CreateTopicsResponse)
                assert made.topics[0].error_code == 0
                await cluster.led(name)
            assert (await clients[third].produce("t", batch_of("more"))).error_code == 0
        after = cluster.told("t")
        assert after is not None
        assert (after.leader, after.leader_epoch, set(after.isr)) == (third, state.leader_epoch, {second, third})


async def test_where_nobody_can_lead_for_full_disks_the_leader_does_when_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        first = await begun(cluster)
        others = set(NODES) - {first}
        with monkeypatch.context() as patch:
            fill_the_disks(patch, [tmp_path / str(node) / "t-0" for node in others])
            await cluster.kill(first)
            await until(lambda: (state := cluster.told("t")) is not None and len(state.isr) == 1)
            state = cluster.told("t")
            assert state is not None
            epoch = state.leader_epoch
        leader = await cluster.led("t", among=others)
        await until(lambda: (state := cluster.told("t")) is not None and set(state.isr) == others)
        after = cluster.told("t")
        assert after is not None
        assert after.leader_epoch == epoch
        async with cluster.clients() as clients:
            assert (await clients[leader].produce("t", batch_of("more"))).error_code == 0
            assert await read_all(clients[leader]) == [*VALUES, "more"]
