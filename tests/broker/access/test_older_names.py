"""Principals for names of certificates as they were once written here: they match nobody, which a start tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.access.acls import AclBinding, ResourcePattern
from broker.access.authorizer import Authorizer
from broker.access.distinguished_names import is_written_otherwise
from broker.access.known_acls import KnownAcls
from broker.cluster.embedded import EmbeddedMetadataStore
from broker.wire.vocabulary import AclOperation, AclPattern, AclPermission, AclResource
from tests.broker.access.java_names import NAMES
from tests.broker.clock import ManualClock

ORDERS = ResourcePattern(AclResource.TOPIC, "orders", AclPattern.LITERAL)
OLDER = ["CN=a,emailAddress=a@b", "serialNumber=7,CN=a", "CN=a=b", "OU=a\\,b=c", "CN=a#b", "CN=#a", "O=x+CN=y=z"]


@pytest.mark.parametrize("name", OLDER)
def test_a_name_as_it_was_once_written(name: str) -> None:
    assert is_written_otherwise(name)


@pytest.mark.parametrize("name", [*(text for _, text in NAMES), "farshore", "*", "svc#1", "host/east@EXAMPLE.ORG"])
def test_a_name_as_java_writes_it_or_of_a_login(name: str) -> None:
    assert not is_written_otherwise(name)


async def test_who_is_named_by_such_a_name_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, clock = EmbeddedMetadataStore.open(tmp_path), ManualClock()
    denial = AclBinding(*ORDERS, "User:CN=a=b", "*", AclOperation.READ, AclPermission.DENY)
    await KnownAcls(store, None, clock).change([ORDERS], lambda pattern, known: known | {denial})
    authorizer = Authorizer(["User:serialNumber=7", "User:CN=one"], allows_without_acls=False, clock=clock)
    known = KnownAcls(store, authorizer, clock)
    for _ in range(2):
        await known.learn()
    assert [message.split(" ")[0] for message in caplog.messages] == ["User:CN=a=b", "User:serialNumber=7"]
    assert all("is the name of no certificate" in message for message in caplog.messages)
