"""Cleaning up after killed runs, where one thing that they left gives trouble: all else goes."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import list_topics
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from chaos.cleaning import Cleaning
from chaos.errors import FaultNotRemoved
from chaos.names import folder_of, link_of, topic_of
from mirror.link import STATE_PREFIX
from tests.broker.faults import Faults, injected
from tests.broker.running import running_server
from tests.mirror.harness import make_topic

RUN = "0123abcd"
TOPIC, STATE = topic_of(RUN), f"{STATE_PREFIX}{link_of(RUN)}"


@dataclass
class Stage:
    cluster: Cluster
    cleaning: Cleaning
    faults: Faults
    folder: Path

    async def left(self) -> set[str]:
        return {name for name in await list_topics(self.cluster) if RUN in name}


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """A dead run has left two topics and its folder."""
    faults = Faults()
    folder = tmp_path / folder_of(RUN)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with running_server(tmp_path / "east") as server, Cluster(Site("east", server.address)) as cluster:
        for name in (TOPIC, STATE):
            await make_topic(cluster, name)
        with injected(monkeypatch, {server.broker: faults}):
            yield Stage(cluster, Cleaning({"east": cluster}, (), None), faults, folder)


async def test_a_partition_that_cannot_be_asked_hides_no_dead_run(stage: Stage) -> None:
    stage.faults.refuse(TopicPartition(TOPIC, 0), ErrorCode.KAFKA_STORAGE_ERROR, ApiKey.LIST_OFFSETS)
    found = await stage.cleaning.find(watch_s=0)
    assert {left.name for left in found.dead} == {TOPIC, STATE, str(stage.folder)}
    await stage.cleaning.remove(found.dead)
    assert await stage.left() == set()
    assert not stage.folder.exists()


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
async def test_a_topic_that_cannot_be_deleted_keeps_nothing_else(stage: Stage, code: ErrorCode) -> None:
    """One that somebody else has deleted meanwhile is no trouble."""
    found = await stage.cleaning.find(watch_s=0)
    stage.faults.topics[ApiKey.DELETE_TOPICS, TOPIC] = code
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        await stage.cleaning.remove(found.dead)
    else:
        with pytest.raises(FaultNotRemoved, match=TOPIC):
            await stage.cleaning.remove(found.dead)
    assert await stage.left() == {TOPIC}
    assert not stage.folder.exists()
