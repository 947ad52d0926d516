"""AlterUserScramCredentials, DescribeUserScramCredentials, AlterClientQuotas, DescribeClientQuotas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    QuotaAlteration,
)
from broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from broker.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
)
from broker.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tests.interop.side_by_side.asking import POLL_SECONDS, READY_SECONDS, Case, Peer

SHA_256, SHA_512 = 1, 2
Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


def _set(user: str, mechanism: int = SHA_256, iterations: int = 4096, **fields: Any) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        user, mechanism, iterations, **{"salt": b"salt", "salted_password": b"x" * 32, **fields}
    )


def _altering(*asked: Alteration) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        [one for one in asked if isinstance(one, ScramCredentialDeletion)],
        [one for one in asked if isinstance(one, ScramCredentialUpsertion)],
    )


async def _until_described(peer: Peer, user: str, count: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        asked = DescribeUserScramCredentialsRequest([UserName(user)])
        (found,) = (await peer.prepare(asked, 0, DescribeUserScramCredentialsResponse)).results
        if len(found.credential_infos) == count:
            return
        assert time.monotonic() < deadline, found
        await asyncio.sleep(POLL_SECONDS)


async def scram_credentials(peer: Peer) -> None:
    one, two, gone = (peer.name(each) for each in ("one", "two", "gone"))

    async def alter(label: str, *asked: Alteration) -> None:
        await peer.ask(label, _altering(*asked), 0)

    await alter("nothing")
    await alter("two users", _set(one), _set(two, SHA_512, 16384), _set(gone))
    await alter("another mechanism", _set(one, SHA_512, 8192))
    await _until_described(peer, one, 2)
    await _until_described(peer, gone, 1)
    refused: dict[str, Alteration] = {
        "few": _set(two, iterations=4095),
        "many": _set(two, iterations=16385),
        "negative": _set(two, iterations=-1),
        "no name": _set(""),
        "unknown mechanism": _set(two, 3),
        "mechanism 0": _set(two, 0),
        "no salt": _set(peer.name("unsalted"), salt=b""),
        "no password": _set(two, salted_password=b""),
        "delete nobody": ScramCredentialDeletion(peer.name("nobody"), SHA_256),
        "delete what he has not": ScramCredentialDeletion(two, SHA_256),
        "delete, unknown mechanism": ScramCredentialDeletion(two, 3),
        "delete, no name": ScramCredentialDeletion("", SHA_256),
    }
    for label, wrong in refused.items():
        await alter(label, wrong)
    await alter("one right, one wrong", _set(one, SHA_512, 8192), _set(two, iterations=1))
    await alter("set twice", _set(two), _set(two, SHA_512))
    await alter("set three times", _set(two), _set(two, SHA_512), _set(two))
    await alter("delete twice", ScramCredentialDeletion(one, SHA_256), ScramCredentialDeletion(one, SHA_512))
    await alter("deleted and set", ScramCredentialDeletion(one, SHA_256), _set(one))
    await alter("deleted in vain and set", ScramCredentialDeletion(two, SHA_256), _set(two))
    await alter("deleted", ScramCredentialDeletion(gone, SHA_256))
    await _until_described(peer, gone, 0)
    await alter("deleted again", ScramCredentialDeletion(gone, SHA_256))
    for label, users in {
        "two": [one, two],
        "one who is gone": [gone, one],
        "one twice": [one, two, one],
        "no name, described": [""],
    }.items():
        await peer.ask(label, DescribeUserScramCredentialsRequest([UserName(user) for user in users]), 0)


Who = dict[str, str | None]


def _entity(who: Who) -> list[EntityData]:
    return [EntityData(kind, name) for kind, name in who.items()]


async def _alter(peer: Peer, label: str, who: Who, values: Mapping[str, float | None], version: int = 1) -> None:
    ops = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
    await peer.ask(label, AlterClientQuotasRequest([QuotaAlteration(_entity(who), ops)]), version)


async def client_quotas(peer: Peer) -> None:
    user, client, other = peer.name("u"), peer.name("c é/*"), peer.name("other")
    ours: list[Who] = [
        {"user": user},
        {"user": user, "client-id": client},
        {"user": user, "client-id": None},
        {"client-id": client},
        {"ip": "10.1.2.3"},
    ]

    for version, who in enumerate(ours):
        key = "connection_creation_rate" if "ip" in who else "producer_byte_rate"
        await _alter(peer, f"set on {'-'.join(who)} {version}", who, {key: 1000.0}, version % 2)
    await _alter(
        peer, "more", ours[0], {"request_percentage": 12.5, "consumer_byte_rate": 7.0, "controller_mutation_rate": 0.5}
    )
    await _alter(peer, "taken away", ours[0], {"consumer_byte_rate": None})
    await _alter(peer, "taken away in vain", {"user": other}, {"consumer_byte_rate": None})
    await _alter(peer, "nothing", {"user": other}, {})
    await _until_quota(peer, ours[-1])
    await _ask_for_quotas(peer, user, client)
    for who in ours:
        key = "connection_creation_rate" if "ip" in who else "producer_byte_rate"
        await _alter(peer, f"gone from {list(who.items())}", who, {key: None})


async def _ask_for_quotas(peer: Peer, user: str, client: str) -> None:
    async def describe(label: str, *parts: tuple[str, int, str | None], strict: bool = False) -> None:
        await peer.ask(label, DescribeClientQuotasRequest([ComponentData(*part) for part in parts], strict), 1)

    await describe("by user", ("user", 0, user))
    await describe("by user alone", ("user", 0, user), strict=True)
    await describe("by user and client", ("user", 0, user), ("client-id", 0, client))
    await describe("by user and any client", ("user", 0, user), ("client-id", 2, None), strict=True)
    await describe("by user and default client", ("user", 0, user), ("client-id", 1, None))
    await describe("by client", ("client-id", 0, client))
    await describe("by client alone", ("client-id", 0, client), strict=True)
    await describe("by address", ("ip", 0, "10.1.2.3"))
    await describe("nobody's", ("user", 0, peer.name("nobody")))
    await describe("default users", ("user", 1, None), strict=True)
    await describe("strictly nothing", strict=True)
    await describe("wrong: no type", ("", 0, "x"))
    await describe("wrong: a type of no kind", ("group", 0, "x"))
    await describe("wrong: twice", ("user", 0, "x"), ("user", 0, "y"))
    await describe("wrong: exactly nobody", ("user", 0, None))
    await describe("wrong: the default by name", ("user", 1, "x"))
    await describe("wrong: any by name", ("user", 2, "x"))
    await describe("wrong: match type 3", ("user", 3, None))
    await describe("wrong: user and address", ("user", 0, "x"), ("ip", 0, "10.1.2.3"))


async def wrong_client_quotas(peer: Peer) -> None:
    user, other = peer.name("u"), peer.name("other")
    for label, value in {
        "zero": 0.0, "negative": -1.0, "a fraction": 1.5, "nearly whole": 1000.0000001, "tiny": 1e-9, "large": 1e15,
    }.items():  # fmt: skip
        await _alter(peer, f"bytes: {label}", {"user": other}, {"producer_byte_rate": value})
        await _alter(peer, f"percentage: {label}", {"client-id": other}, {"request_percentage": value})
    await _alter(peer, "unknown key", {"user": other}, {"bytes": 1.0})
    await _alter(peer, "unknown key taken away", {"user": other}, {"bytes": None})
    await _alter(peer, "one right, one wrong", {"user": other}, {"producer_byte_rate": 5.0, "bytes": 1.0})
    await _alter(peer, "a user's on an address", {"ip": "10.1.2.4"}, {"producer_byte_rate": 1.0})
    await _alter(peer, "an address's on a user", {"user": other}, {"connection_creation_rate": 1.0})
    strange: dict[str, Who] = {
        "nobody": {},
        "empty user": {"user": ""},
        "empty client": {"user": user, "client-id": ""},
        "unknown type": {"group": "x"},
        "user and address": {"user": user, "ip": "10.1.2.4"},
        "no address": {"ip": "no such host!"},
    }
    for label, who in strange.items():
        await _alter(peer, label, who, {"producer_byte_rate": 1.0, "connection_creation_rate": 1.0})
    twice = [QuotaAlteration(_entity({"user": other}), [OpData("producer_byte_rate", value)]) for value in (3.0, 4.0)]
    await peer.ask("an entity twice", AlterClientQuotasRequest(twice), 1)
    keys = QuotaAlteration(_entity({"user": other}), [OpData("producer_byte_rate", value) for value in (3.0, 4.0)])
    await peer.ask("a key twice", AlterClientQuotasRequest([keys]), 1)
    await peer.ask(
        "only looked at",
        AlterClientQuotasRequest(
            [QuotaAlteration(_entity({"user": other}), [OpData("producer_byte_rate", 9.0)])], True
        ),
        1,
    )
    await _until_quota(peer, {"ip": "10.1.2.5"})
    for kind in ("user", "client-id"):
        await peer.ask(f"what is left by {kind}", DescribeClientQuotasRequest([ComponentData(kind, 0, other)]), 1)


async def _until_quota(peer: Peer, who: Who) -> None:
    """Set last: all before it is known, too."""
    deadline = time.monotonic() + READY_SECONDS
    asked = DescribeClientQuotasRequest([ComponentData(kind, 0, name) for kind, name in who.items()])
    last = QuotaAlteration(_entity(who), [OpData("connection_creation_rate", 2000.0)])
    await peer.prepare(AlterClientQuotasRequest([last]), 1, AlterClientQuotasResponse)
    while True:
        entries = (await peer.prepare(asked, 1, DescribeClientQuotasResponse)).entries or []
        if [value.value for entry in entries for value in entry.values] == [2000.0]:
            return
        assert time.monotonic() < deadline, entries
        await asyncio.sleep(POLL_SECONDS)


CASES: tuple[Case, ...] = (scram_credentials, client_quotas, wrong_client_quotas)
