"""Configs of topics, as a cluster tells them and takes them."""

from __future__ import annotations

from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.configs import alter_topic_configs, describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.site import Site
from broker.wire.vocabulary import ConfigOperation
from tests.broker.running import running_server


async def test_a_refusal_names_the_topic_and_its_site(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, Cluster(Site("east", server.address)) as cluster:
        described = (await describe_topic_configs(cluster, ["gone"]))["gone"]
        altered = (await alter_topic_configs(cluster, {"gone": [("retention.ms", ConfigOperation.SET, "1")]}))["gone"]
    assert isinstance(described, KafkaError)
    for error in (described, altered):
        assert str(error).startswith("configs of topic gone at east: UNKNOWN_TOPIC_OR_PARTITION")
