"""The search for secrets finds what it is there for."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.compression import Compression
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import make_topic, write
from tests.secrets_shown import files_in, own_records, shown

SECRET = 'canary-"secret"&7Qw'
SECRETS = {"the password": SECRET}


@pytest.mark.parametrize(
    "told",
    [
        f"refused {SECRET}!",
        json.dumps({"password": SECRET}),
        repr(("shop", SECRET)),
        f"https://login.example/?password={quote(SECRET)}",
        *(base64.b64encode(f"{before}\0{SECRET}\0".encode()).decode() for before in ("", "u", "us")),
        SECRET.encode().hex(),
        b"\xff\0" + SECRET.encode() + b"\xfe",
    ],
)
def test_a_secret_is_found_as_it_is_written_there(told: str | bytes) -> None:
    assert shown(SECRETS, {"a log": "nothing", "an answer": told}) == ["the password in an answer"]


def test_files_are_looked_through_but_for_those_that_it_is_to_stand_in(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("secret", "deep/log"):
        (tmp_path / name).write_text(SECRET)
    assert shown(SECRETS, files_in(tmp_path, lambda file: file.name == "secret")) == ["the password in deep/log"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with FarshoreBroker(tmp_path / "broker") as broker:
        yield Site("east", broker.bootstrap)


async def test_every_part_of_a_record_of_farshores_own_topics_is_looked_through(site: Site) -> None:
    secret = SECRET.encode()
    records = {
        "__farshore-key": Record(0, 1, secret, None),
        "__farshore-value": Record(0, 1, None, secret),
        "__farshore-header": Record(0, 1, None, None, (("login", secret),)),
        "__farshore-name": Record(0, 1, None, None, ((SECRET, None),)),
        "flights": Record(0, 1, None, secret),
    }
    async with Cluster(site) as cluster:
        await make_topic(cluster, "__farshore-none", 2)
        for topic, record in records.items():
            await make_topic(cluster, topic, 2)
            both = [Record(0, 1, b"k", None), record._replace(offset=1)]
            await write(cluster, TopicPartition(topic, 1), both, Compression.ZSTD)
    found = shown(SECRETS, await own_records([site]))
    assert sorted(found) == [f"the password in {topic} at east" for topic in sorted(records) if topic != "flights"]
