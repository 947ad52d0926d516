"""What is set on users in the metadata: read as Kafka writes it, and nothing of it shown where it is damaged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.access.entities import Entity, entity_of, path_of, sanitized
from broker.access.known_entities import KnownEntities
from broker.access.known_users import KnownUsers
from broker.access.users import Credential, credential_of, new_credentials, read_users, text_of, write_users
from broker.base.reloaded import AccessInvalid, Reloaded
from broker.client.security.scram import HASHES
from broker.client.security.settings import Mechanism
from tests.broker.clock import ManualClock
from tests.broker.cluster.test_zookeeper_acls import Cluster

SHA = Mechanism.SCRAM_SHA_256
KAFKAS = (
    "salt=MW1yYmNpb2NsdHA1eGpyc2txaWc2bGRzMHg=,"
    "stored_key=J/hyjSyJfYzmbEnnDXrnODYl4Bzjq7jJbMgQUjLY9kQ=,"
    "server_key=pTgRsx5XTQFAbuYG1dCLz3Ohqy7f8pqxH2ZWDzcNW3k=,iterations=4096"
)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.none()


def test_kafkas_text_is_read_and_ours_is_kafkas() -> None:
    one = credential_of(SHA, KAFKAS)
    assert (one.iterations, len(one.stored_key)) == (4096, 32)
    assert text_of(one) == KAFKAS
    for mechanism in HASHES:
        made = new_credentials("x")[mechanism]
        assert credential_of(mechanism, text_of(made)) == made


@pytest.mark.parametrize(
    "text",
    ["", "hunter2", "salt=", KAFKAS[:-4], KAFKAS.replace("4096", "hunter2"), KAFKAS.replace("4096", "100"), KAFKAS[9:]],
)
def test_what_is_no_credential_is_told_without_it(text: str) -> None:
    with pytest.raises(AccessInvalid) as caught:
        credential_of(SHA, text)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(AccessInvalid):
        credential_of(Mechanism.SCRAM_SHA_512, KAFKAS)


def test_a_login_by_plain_takes_what_that_of_anybody_does(tmp_path: Path) -> None:
    file, sha_512 = tmp_path / "users.json", Mechanism.SCRAM_SHA_512
    write_users(file, {"both": new_credentials("x")})
    users = KnownUsers(Reloaded([file], lambda: read_users(file), ManualClock().monotonic))
    assert users.plain_work() == {SHA: 8192}
    users.take({"users/few": {SHA: KAFKAS}})
    assert users.plain_work() == {SHA: 8192}
    users.take({"users/many": {sha_512: text_of(Credential.of(sha_512, "x", b"salt", 16384))}})
    assert users.plain_work() == {SHA: 8192, sha_512: 16384}
    users.take({"users/many": {}})
    write_users(file, {})
    assert users.plain_work() == {SHA: 4096}
    assert KnownUsers().plain_work() == {sha_512: 8192}


@given(st.fixed_dictionaries({"user": names, "client-id": names}) | st.fixed_dictionaries({"ip": names}))
def test_every_name_has_a_path_of_its_own(entity: Entity) -> None:
    path = path_of(entity)
    assert entity_of(path) == entity
    assert set(path) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_%/<>")
    assert path.count("/") == 2 * len(entity) - 1


def test_names_are_written_as_java_does() -> None:
    assert sanitized("CN=a b+c*~é/<default>") == "CN%3Da%20b%2Bc%2A%7E%C3%A9%2F%3Cdefault%3E"
    assert sanitized(None) == "<default>"


@pytest.mark.parametrize(
    "data",
    [
        b"hunter2",
        b'["hunter2"]',
        b'{"version":1,"config":{"SCRAM-SHA-256":["hunter2"]}}',
        b'{"version":1,"config":"hunter2"}',
        b'"hunter2 \xff"',
        b'{"version":1,"config":{"SCRAM-SHA-256":"hunter2"}}',
    ],
)
async def test_a_damaged_user_lets_nobody_in_and_is_told_without_what_stands_there(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = Cluster()
    store = await cluster.store()
    known, users = KnownEntities(store, ManualClock()), KnownUsers()
    known.listeners.append(users.take)
    good = text_of(new_credentials("x")[SHA])
    await known.change("users/shop", lambda _: {SHA: good})
    await known.change("users/other", lambda _: {SHA: good, "producer_byte_rate": "7"})
    await known.change("users/other/clients/app", lambda _: {"producer_byte_rate": "8"})
    assert users.of("shop")[SHA] == credential_of(SHA, good)
    await cluster.hand.set("/config/users/shop", data)
    await known.learn()
    assert users.of("shop") == {}
    assert set(users.stored) == {"other"}
    assert "users/shop" in caplog.text
    assert "hunter2" not in caplog.text
    await cluster.hand.delete("/config/users/shop")
    await known.learn({"users/shop"})
    assert set(known.values) == {"users/other", "users/other/clients/app"}
