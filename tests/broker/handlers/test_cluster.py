"""DescribeCluster, DescribeLogDirs, DescribeAcls."""

from __future__ import annotations

from pathlib import Path

from broker.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from broker.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from broker.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tests.broker.running import running_broker
from tests.broker.wire_client import batch_of, connect


async def test_the_cluster_keeps_its_id(tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        async with running_broker(tmp_path) as address, connect(address) as client:
            for version in (0, 1):
                response = await client.ask(DescribeClusterRequest(), version, DescribeClusterResponse)
                assert (response.error_code, response.controller_id) == (0, 1)
                assert [f"{b.host}:{b.port}" for b in response.brokers] == [address]
                seen.add(response.cluster_id)
            refused = await client.ask(DescribeClusterRequest(endpoint_type=2), 1, DescribeClusterResponse)
            assert refused.error_code == 114
    assert len(seen) == 1


async def test_log_dirs_show_sizes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", partitions=2)
        await client.produce("t", batch_of("x" * 1000), partition=1)
        for version in range(1, 5):
            asked = DescribeLogDirsRequest([DescribableLogDirTopic("t", [1, 9]), DescribableLogDirTopic("no", [0])])
            (result,) = (await client.ask(asked, version, DescribeLogDirsResponse)).results
            assert result.log_dir == str(tmp_path)
            ((topic, partitions),) = [(t.name, t.partitions) for t in result.topics]
            assert (topic, [p.partition_index for p in partitions]) == ("t", [1])
            assert partitions[0].partition_size > 1000
            assert (result.total_bytes > 0) == (version >= 4)
        everything = await client.ask(DescribeLogDirsRequest(None), 4, DescribeLogDirsResponse)
        assert len(everything.results[0].topics[0].partitions) == 2


async def test_there_is_no_authoriser(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        for version in (1, 2, 3):
            response = await client.ask(
                DescribeAclsRequest(1, None, 3, None, None, 1, 1), version, DescribeAclsResponse
            )
            assert response.error_code == 54
