"""kcat as Debian ships it: librdkafka 2.0.2, which does not compress unless Produce is advertised from version 0."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.interop.servers import ServerFailed, run


def kcat(cluster: str, *arguments: str, stdin: str | None = None) -> str:
    found = shutil.which("kcat")
    if found is None:
        raise ServerFailed("there is no kcat; run: make kcat")
    return run([found, "-b", cluster, *arguments], stdin=stdin)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_read(cluster: str, topic: str, codec: str) -> None:
    lines = [f"k{i}:value {i} {'x' * 50}" for i in range(1000)]
    kcat(cluster, "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "h=1", stdin="\n".join(lines) + "\n")
    shape = '{"offset":%o,"key":"%k","value":"%s","headers":"%h"}\n'
    printed = kcat(cluster, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", shape)
    records = [json.loads(line) for line in printed.splitlines()]
    assert [f"{record['key']}:{record['value']}" for record in records] == lines
    assert [record["offset"] for record in records] == list(range(1000))
    assert {record["headers"] for record in records} == {"h=1"}


def test_metadata_and_tail(cluster: str, topic: str) -> None:
    kcat(cluster, "-P", "-t", topic, "-p", "0", stdin="".join(f"{i}\n" for i in range(10)))
    listed = json.loads(kcat(cluster, "-L", "-J", "-t", topic))
    assert [entry["topic"] for entry in listed["topics"]] == [topic]
    assert sorted(broker["name"] for broker in listed["brokers"]) == sorted(cluster.split(","))
    assert kcat(cluster, "-C", "-t", topic, "-o", "-3", "-e", "-q").split() == ["7", "8", "9"]
    assert kcat(cluster, "-Q", "-t", f"{topic}:0:-1").split() == [topic, "[0]", "offset", "10"]
