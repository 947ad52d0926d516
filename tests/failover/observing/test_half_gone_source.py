"""A source that answers only in part: its metadata comes, its partitions' leaders do not."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.limits import ClientLimits
from broker.client.log import append
from broker.client.site import Site
from broker.wire.api import ApiKey
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from failover.losses.statements import Certainty, state_loss
from failover.observing.contact import SiteFinding
from failover.observing.sites import Sites
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.moves import MoveKind
from failover.planning.plan import plan_failover
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.offsets.state_writer import ensure_own_topics
from tests.broker.running import running_broker
from tests.failover.stage import GROUP, PARTITIONS, TOPIC, mirrored, two_sites
from tests.mirror.harness import make_topic, running, some_records, wait_for_records, write

IMPATIENT = ClientLimits(retry_backoff_max_ms=100, retry_timeout_ms=500, partition_patience_ms=300)


@asynccontextmanager
async def deaf_to(api: ApiKey, bootstrap: str, is_deaf: Callable[[], bool] = lambda: True) -> AsyncIterator[str]:
    """An address before the broker at which requests of one kind end the connection, while it `is_deaf`."""
    host, port = bootstrap.rsplit(":", 1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, before = await asyncio.open_connection(host, int(port))

        async def ask() -> None:
            while size := await reader.read(4):
                size += await reader.readexactly(4 - len(size))
                frame = await reader.readexactly(struct.unpack(">i", size)[0])
                if struct.unpack_from(">h", frame)[0] == api and is_deaf():
                    break
                before.write(size + frame)
            before.close()

        async def answer() -> None:
            while answered := await behind.read(65536):
                writer.write(answered)
            writer.close()

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(ask())
                tasks.create_task(answer())
        except* (OSError, asyncio.IncompleteReadError):
            pass  # one of the two ends left: so does the other
        finally:
            before.close()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_failover_looks_past_a_source_that_answers_in_part(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "east") as east, running_broker(tmp_path / "west") as west:
        link = Link("east-west", Site("east", east), Site("west", west), ("flights",))
        where = TopicPartition("flights", 0)
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await make_topic(source, where.topic)
            await write(source, where, some_records(0, 10))
            async with running(link):
                await wait_for_records(target, where, 10)
            whole = await Sites(link, source, target, (), _now_ms).look_past_source()
            assert whole.source_answers
            async with deaf_to(ApiKey.LIST_OFFSETS, east) as half:
                site = Site("east", half, {east: half})
                async with Cluster(site, limits=IMPATIENT) as half_source:
                    snapshot = await Sites(link, half_source, target, (), _now_ms).look_past_source()
        (view,) = snapshot.partitions
        assert snapshot.source_finding is SiteFinding.PARTLY_THERE
        assert [answer.answered for answer in snapshot.evidence] == [True]
        assert (view.source_end, view.mirrored_source_next) == (None, 10)
        assert state_loss(view, snapshot.taken_at_ms).certainty is Certainty.AT_LEAST


@pytest.mark.parametrize("api", [ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS])
async def test_what_the_target_does_for_a_moment_is_not_the_source_s_fault(
    tmp_path: Path, api: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that is wholly there was said to be there in part, and its groups' offsets were not asked for."""
    looks = 0

    def count_looks() -> int:
        nonlocal looks
        looks += 1
        return _now_ms()

    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        address = stage.link.target.bootstrap_servers
        async with (
            deaf_to(api, address, lambda: looks < 2) as passing,
            Cluster(Site("west", passing, {address: passing}), limits=IMPATIENT) as target,
        ):
            snapshot = await replace(stage.sites, target=target, now_ms=count_looks).look_past_source()
        assert looks >= 2
        assert (snapshot.source_finding, snapshot.unanswered) == (SiteFinding.ALIVE, frozenset())
        monkeypatch.setattr("failover.observing.sites.LOOK_AGAIN_S", 0.0)
        async with (
            deaf_to(api, address) as half,
            Cluster(Site("west", half, {address: half}), limits=IMPATIENT) as target,
        ):
            looking = replace(stage.sites, target=target).look_past_source()
            if api is ApiKey.LIST_OFFSETS:  # the link's state cannot be read either
                with pytest.raises(ClientError):
                    await looking
            else:
                seen = await looking
                assert seen.source_finding is SiteFinding.ALIVE
                assert seen.unanswered == {("group", GROUP)}


async def test_what_a_part_of_the_source_still_tells_is_used(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await write(stage.source, PARTITIONS[0], some_records(5000, 7))
        address = stage.link.source.bootstrap_servers
        async with (
            deaf_to(ApiKey.OFFSET_FETCH, address) as half,
            Cluster(Site("east", half, {address: half}), limits=IMPATIENT) as half_source,
        ):
            snapshot = await replace(stage.sites, source=half_source).look_past_source()
    assert snapshot.source_finding is SiteFinding.PARTLY_THERE
    losses = [state_loss(view, snapshot.taken_at_ms) for view in snapshot.partitions]
    assert [(loss.certainty, loss.offsets) for loss in losses] == [(Certainty.EXACT, 7), (Certainty.EXACT, 0)]
    plan = plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=True)
    assert plan.refusals == (GateRefusal(RefusalReason.SOURCE_PARTLY_THERE, "east"),)
    assert {move.kind for move in plan.moves} == {MoveKind.KEPT}
    consented = plan_failover(
        snapshot, allow_data_loss=True, even_if_source_answers=False, even_if_source_partly_there=True
    )
    assert consented.refusals == ()


@pytest.mark.parametrize("damaged", ["registry", "state of the link back"])
async def test_what_cannot_be_read_at_the_source_holds_up_no_failover(tmp_path: Path, damaged: str) -> None:
    """The site is to be left: a damaged entry there must not keep anybody."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await write(stage.source, PARTITIONS[0], some_records(5000, 7))
        back = Link("west-east", stage.link.target, stage.link.source, (TOPIC,))
        await ensure_own_topics(stage.source, back)
        entry = encode_batch([Record(0, 1, b'["producer",7]' if damaged == "registry" else b'["run"]', b"not json")])
        topic = PRODUCERS_TOPIC if damaged == "registry" else back.state_topic
        await append(stage.source, TopicPartition(topic, 0), entry)
        link = replace(stage.link, reverse_links=() if damaged == "registry" else (back,))
        snapshot = await replace(stage.sites, link=link).look_past_source()
    assert snapshot.source_finding is SiteFinding.PARTLY_THERE
    losses = [state_loss(view, snapshot.taken_at_ms) for view in snapshot.partitions]
    if damaged == "registry":
        assert [(loss.certainty, loss.offsets) for loss in losses] == [(Certainty.EXACT, 7), (Certainty.EXACT, 0)]
    plan = plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=False, even_if_source_partly_there=True)
    assert plan.refusals == ()
    assert {move.kind for move in plan.moves} == {MoveKind.KEPT}


def _now_ms() -> int:
    return round(time.time() * 1000)
