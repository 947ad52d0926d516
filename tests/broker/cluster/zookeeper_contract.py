"""What a ZooKeeper session must do, on the fake and on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.cluster.zookeeper.errors import BadVersion, NodeExists, NoNode, NotEmpty, SessionExpired
from broker.cluster.zookeeper.session import Check, Create, Delete, SetData, WatchEvent, WatchKind, ZooKeeper

Connect = Callable[[], Awaitable[ZooKeeper]]
"""A new session of the same, empty ensemble (or chroot) at each call."""

WAIT_S = 60


class Seen:
    """A watch that keeps what it was told."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[WatchEvent] = asyncio.Queue()

    def __call__(self, event: WatchEvent) -> None:
        self.events.put_nowait(event)

    async def next(self) -> WatchEvent:
        async with asyncio.timeout(WAIT_S):
            return await self.events.get()


class ZooKeeperContract:
    """Subclasses give a fixture `connect` of the type Connect."""

    async def test_a_znode_is_made_read_changed_and_deleted(self, connect: Connect) -> None:
        zk = await connect()
        path, made = await zk.create("/a", b"one")
        assert path == "/a"
        assert (await zk.get("/a")) == (b"one", made)
        assert (made.version, made.ephemeral_owner, made.mzxid) == (0, 0, made.czxid)
        changed = await zk.set("/a", b"two", 0)
        assert (changed.version, changed.czxid) == (1, made.czxid)
        assert changed.mzxid > made.mzxid
        with pytest.raises(BadVersion):
            await zk.set("/a", b"three", 0)
        with pytest.raises(BadVersion):
            await zk.delete("/a", 0)
        assert await zk.get("/a") == (b"two", changed)
        await zk.delete("/a", 1)
        assert await zk.exists("/a") is None

    async def test_what_is_not_there_and_what_is(self, connect: Connect) -> None:
        zk = await connect()
        for missing in (zk.get("/a"), zk.children("/a"), zk.set("/a", b""), zk.delete("/a"), zk.create("/a/b")):
            with pytest.raises(NoNode):
                await missing
        await zk.create("/a")
        await zk.create("/a/b")
        with pytest.raises(NodeExists):
            await zk.create("/a")
        with pytest.raises(NotEmpty):
            await zk.delete("/a")
        assert await zk.children("/a") == ["b"]
        assert "a" in await zk.children("/")

    async def test_sequential_names_rise_and_do_not_come_again(self, connect: Connect) -> None:
        zk = await connect()
        await zk.create("/q")
        first, _ = await zk.create("/q/n_", sequence=True)
        await zk.delete(first)
        second, _ = await zk.create("/q/n_", sequence=True)
        assert [first, second] == ["/q/n_0000000000", "/q/n_0000000001"]

    async def test_zxids_rise_over_all_znodes(self, connect: Connect) -> None:
        zk = await connect()
        made = [(await zk.create("/same"))[1].czxid]
        await zk.delete("/same")
        made.append((await zk.create("/same"))[1].czxid)
        made.append((await zk.create("/other"))[1].czxid)
        assert made == sorted(set(made))

    async def test_a_multi_is_carried_out_whole_or_not_at_all(self, connect: Connect) -> None:
        zk = await connect()
        await zk.create("/fence", b"7")
        answers = await zk.multi(
            [Check("/fence", 0), Create("/a", b"1"), Create("/a/b"), SetData("/fence", b"8", 0), Delete("/a/b")]
        )
        assert answers[1:3] == ["/a", "/a/b"]
        assert answers[3].version == 1
        assert answers[0] is answers[4] is None
        with pytest.raises(BadVersion) as refused:
            await zk.multi([SetData("/a", b"2"), Create("/c"), Check("/fence", 0)])
        assert refused.value.operation == 2
        with pytest.raises(NodeExists) as exists:
            await zk.multi([Create("/c"), Create("/a")])
        assert exists.value.operation == 1
        with pytest.raises(NoNode) as fenced:
            await zk.multi([Check("/gone", 0)])
        assert fenced.value.operation == 0
        assert await zk.exists("/c") is None
        assert (await zk.get("/a"))[0] == b"1"

    async def test_an_ephemeral_znode_is_its_sessions_and_goes_with_it(self, connect: Connect) -> None:
        ours, theirs = await connect(), await connect()
        _, stat = await theirs.create("/live", b"x", ephemeral=True)
        assert stat.ephemeral_owner == theirs.session_id != ours.session_id
        seen = Seen()
        assert await ours.exists("/live", seen) == stat
        await theirs.close()
        assert await seen.next() == WatchEvent(WatchKind.DELETED, "/live")
        assert await ours.exists("/live") is None

    async def test_a_closed_session_takes_nothing_more(self, connect: Connect) -> None:
        zk = await connect()
        assert not zk.expired
        await zk.close()
        assert zk.expired
        assert zk.alive_until == float("-inf")
        with pytest.raises(SessionExpired):
            await zk.create("/late")
        with pytest.raises(SessionExpired):
            await zk.wait_connected()
        async with asyncio.timeout(WAIT_S):
            await zk.run()

    async def test_a_watch_tells_once(self, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        data, created, children, deleted = Seen(), Seen(), Seen(), Seen()
        await zk.create("/a", b"1")
        await zk.get("/a", data)
        assert await zk.exists("/a/b", created) is None
        await zk.children("/a", children)
        await other.set("/a", b"2")
        await other.set("/a", b"3")
        await other.create("/a/b")
        await other.create("/a/c")
        assert await data.next() == WatchEvent(WatchKind.CHANGED, "/a")
        assert await created.next() == WatchEvent(WatchKind.CREATED, "/a/b")
        assert await children.next() == WatchEvent(WatchKind.CHILDREN, "/a")
        await zk.get("/a/b", deleted)
        await other.delete("/a/b")
        assert await deleted.next() == WatchEvent(WatchKind.DELETED, "/a/b")
        assert data.events.empty()
        assert created.events.empty()
        assert children.events.empty()

    async def test_who_does_not_watch_any_more_is_not_told(self, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        gone, seen = Seen(), Seen()
        await zk.create("/a")
        for watch in (gone, seen):
            await zk.get("/a", watch)
            await zk.children("/a", watch)
        zk.unwatch([gone])
        await other.set("/a", b"1")
        assert await seen.next() == WatchEvent(WatchKind.CHANGED, "/a")
        await other.create("/a/b")
        assert await seen.next() == WatchEvent(WatchKind.CHILDREN, "/a")
        assert gone.events.empty()

    async def test_a_read_that_fails_leaves_what_else_the_same_one_watches(self, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        seen = Seen()
        await zk.create("/a")
        await zk.get("/a", seen)
        with pytest.raises(NoNode):
            await zk.get("/b", seen)
        await other.create("/b")
        await other.set("/a", b"1")
        assert await seen.next() == WatchEvent(WatchKind.CHANGED, "/a")

    async def test_whoever_is_told_reads_what_is_new(self, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        await zk.create("/n", b"0")
        for number in range(1, 20):
            seen = Seen()
            await zk.get("/n", seen)
            await other.set("/n", str(number).encode())
            await seen.next()
            assert (await zk.get("/n"))[0] == str(number).encode()

    async def test_many_requests_at_once_are_answered_each(self, connect: Connect) -> None:
        zk = await connect()
        await zk.create("/m")
        await asyncio.gather(*(zk.create(f"/m/{n}", str(n).encode()) for n in range(300)))
        read = await asyncio.gather(*(zk.get(f"/m/{n}") for n in range(300)))
        assert [data for data, _ in read] == [str(n).encode() for n in range(300)]
        assert len(await zk.children("/m")) == 300

    async def test_requests_are_carried_out_in_their_order(self, connect: Connect) -> None:
        zk = await connect()
        await zk.create("/o", b"")
        stats = await asyncio.gather(*(zk.set("/o", b"", version) for version in range(50)))
        assert [stat.version for stat in stats] == list(range(1, 51))

    async def test_a_session_that_is_heard_of_is_alive(self, connect: Connect) -> None:
        zk = await connect()
        first = zk.alive_until
        assert first > float("-inf")
        assert zk.session_timeout_ms > 0
