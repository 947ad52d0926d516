"""The same tokens shown to Apache Kafka and to farshore's own broker: who gets in, and a reason for each difference."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, Final

from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.running import running_server
from tests.broker.wire_client import connect
from tests.interop.locked import LockedKafkaServer
from tests.issuer import AUDIENCE, ISSUER, claims_of, ec_key, rsa_key, said, signed, unsigned, write_keys

IN: Final = "in"
RSA, EC = rsa_key("rsa-1"), ec_key("ec-1")
ONLY_KAFKA: Final = {
    "no kid": "a token says which key it is signed by: nothing is tried out",
}
ONLY_OURS: Final = {
    "no iat": "when a token was made is told where it is there (RFC 7519, section 4.1.6), and is not needed",
}


def tokens() -> dict[str, str]:
    now_s = int(time.time())

    def one(key: Any = RSA, algorithm: str = "RS256", header: dict[str, Any] | None = None, **claims: Any) -> str:
        return signed(key, algorithm, claims_of(now_s=now_s, **claims), **(header or {}))

    good = one()
    head, body, signature = good.split(".")
    return {
        "good": good,
        "RS512": one(algorithm="RS512"),
        "PS256": one(algorithm="PS256"),
        "ES256": one(EC, "ES256"),
        "several audiences": one(aud=["shop", AUDIENCE]),
        "within the skew": one(exp=now_s - 10, iat=now_s - 300),
        "not yet, within the skew": one(nbf=now_s + 10),
        "no iat": one(iat=None),
        "no kid": one(header={"kid": None}),
        "over": one(exp=now_s - 60, iat=now_s - 300),
        "not yet": one(nbf=now_s + 120),
        "no exp": one(exp=None),
        "another issuer": one(iss="https://evil.example"),
        "no issuer": one(iss=None),
        "another audience": one(aud="shop"),
        "no audience": one(aud=None),
        "no sub": one(sub=None),
        "another key": one(rsa_key("evil"), header={"kid": "rsa-1"}),
        "a key that is not known": one(rsa_key("evil")),
        "alg none": unsigned({"alg": "none", "kid": "rsa-1"}, claims_of()),
        "alg none with a signature": unsigned({"alg": "none", "kid": "rsa-1"}, claims_of(), signature),
        "crit": one(header={"crit": ["kid"]}),
        "another body": f"{head}.{unsigned({}, claims_of('farshore')).split('.')[1]}.{signature}",
        "no signature": f"{head}.{body}.",
        "two parts": f"{head}.{body}",
        "no token": "x",
    }


async def verdict(address: str, token: str) -> str:
    """IN, or the status by which it is refused."""
    async with connect(address) as client:
        assert not (await client.ask(SaslHandshakeRequest("OAUTHBEARER"), 1, SaslHandshakeResponse)).error_code
        answer = await client.ask(SaslAuthenticateRequest(said(token)), 2, SaslAuthenticateResponse)
        assert not answer.error_code
        if not answer.auth_bytes:
            return IN
        last = await client.ask(SaslAuthenticateRequest(b"\x01"), 2, SaslAuthenticateResponse)
        assert last.error_code == 58
        return str(json.loads(bytes(answer.auth_bytes))["status"])


async def test_who_gets_in_gets_in_at_kafka_too(
    kafka_39: LockedKafkaServer, kafka_43: LockedKafkaServer, tmp_path: Path
) -> None:
    ours: dict[str, Any] = {
        "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
        "sasl_enabled_mechanisms": ("OAUTHBEARER",),
        "sasl_oauthbearer_jwks_file": write_keys(tmp_path / "jwks.json", RSA, EC),
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": (AUDIENCE,),
    }
    shown = tokens()
    async with running_server(tmp_path / "data", **ours) as server:
        places = (server.address, kafka_39.at("WORDS"), kafka_43.at("WORDS"))
        asked = [verdict(where, token) for token in shown.values() for where in places]
        told = iter(await asyncio.gather(*asked))
        found = {name: [next(told) for _ in places] for name in shown}
    for name, (at_ours, *at_kafka) in found.items():
        if name in ONLY_KAFKA:
            assert (at_ours, at_kafka) == ("invalid_token", [IN, IN]), name
        elif name in ONLY_OURS:
            assert (at_ours, at_kafka) == (IN, ["invalid_token"] * 2), name
        else:
            assert [at_ours] * 2 == at_kafka, name
    assert [name for name, (at_ours, *_) in found.items() if at_ours == IN] == [*shown][:8]
