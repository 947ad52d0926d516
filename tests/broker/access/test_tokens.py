"""Which tokens let in: signatures, claims, times; and the file of keys. Cheats are refused by what they are."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from joserfc.jwk import ECKey, Key, OctKey, RSAKey

from broker.access.bearer import Bearer, TokenRefused
from broker.access.jwks import RSA_BITS_MIN, Keys, read_keys
from broker.access.tokens import TokenRules, Tokens, bearer_of
from broker.base.reloaded import AccessInvalid
from broker.limits import TOKEN_BYTES_MAX
from tests.broker.clock import ManualClock
from tests.issuer import AUDIENCE, ISSUER, claims_of, ec_key, rsa_key, signed, unsigned, write_keys

NOW_S = 1_795_000_000
NOW_MS = NOW_S * 1000
RULES = TokenRules(ISSUER, (AUDIENCE, "kafka-west"), clock_skew_seconds=30)
RSA, EC = rsa_key("rsa-1"), ec_key("ec-1")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    curves = [ec_key(curve, curve) for curve in ("P-384", "P-521")]
    return read_keys(write_keys(tmp_path_factory.mktemp("issuer") / "jwks.json", RSA, EC, *curves))


def claims(**others: Any) -> dict[str, Any]:
    return claims_of(now_s=NOW_S, **others)


def shown(token: str | bytes, keys: Keys, rules: TokenRules = RULES, now_ms: int = NOW_MS) -> Bearer:
    return bearer_of(token if isinstance(token, bytes) else token.encode(), keys, rules, now_ms)


def refusal(token: str | bytes, keys: Keys, rules: TokenRules = RULES, now_ms: int = NOW_MS) -> TokenRefused:
    with pytest.raises(TokenRefused) as caught:
        shown(token, keys, rules, now_ms)
    return caught.value


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (RSA, "RS256"),
        (RSA, "RS384"),
        (RSA, "RS512"),
        (RSA, "PS256"),
        (EC, "ES256"),
        (ec_key("P-384", "P-384"), "ES384"),
        (ec_key("P-521", "P-521"), "ES512"),
    ],
)
def test_a_token_says_who_comes_and_until_when(keys: Keys, key: Key, algorithm: str) -> None:
    assert shown(signed(key, algorithm, claims()), keys) == Bearer("shop", (NOW_S + 300 + 30) * 1000)


def test_a_token_with_others_in_its_header_and_several_audiences_is_taken(keys: Keys) -> None:
    token = signed(RSA, "RS256", claims(aud=["other", "kafka-west"]), typ="at+jwt", nonce="x", x5t="abc")
    assert shown(token, keys).user == "shop"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"exp": NOW_S - 31}, "the token is over since 2026-11-18T11:06:09Z"),
        ({"exp": None}, "the token lacks the claim exp"),
        ({"exp": "soon"}, "the token's claim exp is not what it should be"),
        ({"exp": True}, "the token's claim exp is not what it should be"),
        ({"exp": float("nan")}, "claim exp is not"),
        ({"nbf": NOW_S + 31}, "the token does not hold before 2026-11-18T11:07:11Z"),
        ({"iat": NOW_S + 31}, "the token does not hold before 2026-11-18T11:07:11Z"),
        ({"nbf": [NOW_S]}, "the token's claim nbf is not what it should be"),
        ({"iss": "https://evil.example"}, f"issuer 'https://evil.example', and this broker takes those of {ISSUER}"),
        ({"iss": [ISSUER]}, f"and this broker takes those of {ISSUER}"),
        ({"iss": None}, "the token lacks the claim iss"),
        ({"aud": "shop"}, "the token is for 'shop', and this broker is kafka or kafka-west"),
        ({"aud": None}, "the token lacks the claim aud"),
        ({"aud": []}, "the token is for []"),
        ({"aud": {"kafka": 1}}, "the token is for {'kafka': 1}"),
        ({"aud": "x" * 5000}, f"the token is for '{'x' * 99}..., and"),
        ({"sub": None}, "the token names nobody: its claim sub is no name"),
        ({"sub": ""}, "names nobody"),
        ({"sub": 7}, "the token's claim sub is not what it should be"),
        ({"sub": "two\nlines"}, "names nobody"),
        ({"sub": "x" * 256}, "names nobody"),
    ],
)
def test_a_claim_that_does_not_fit_is_named(keys: Keys, changed: dict[str, Any], why: str) -> None:
    refused = refusal(signed(RSA, "RS256", claims(**changed)), keys)
    assert why in str(refused)
    assert refused.status == "invalid_token"


def test_clocks_that_differ_a_little_let_in(keys: Keys) -> None:
    late = claims(exp=NOW_S - 29, iat=NOW_S - 300)
    assert shown(signed(RSA, "RS256", late), keys).ends_ms == NOW_MS + 1000
    early = claims(nbf=NOW_S + 30, iat=NOW_S + 30)
    assert shown(signed(RSA, "RS256", early), keys).user == "shop"
    strict = TokenRules(ISSUER, (AUDIENCE,))
    assert "is over" in str(refusal(signed(RSA, "RS256", claims(exp=NOW_S)), keys, strict))


@pytest.mark.parametrize("exp", [10**30, 1e300, 10**400])
def test_a_token_that_never_ends_ends_in_the_year_9999(keys: Keys, exp: float) -> None:
    assert shown(signed(RSA, "RS256", claims(exp=exp)), keys).ends_ms == (253_402_300_799 + 30) * 1000


def test_scopes_and_other_claims_are_asked_where_the_rules_say_so(keys: Keys) -> None:
    rules = TokenRules(ISSUER, scopes=("kafka", "write"), principal_claim="azp", scope_claim="scp")
    token = signed(RSA, "RS256", claims(aud=None, azp="mirror", scp="write kafka more"))
    assert shown(token, keys, rules).user == "mirror"
    assert shown(signed(RSA, "RS256", claims(azp="mirror", scp=["kafka", "write"])), keys, rules).user == "mirror"
    for scp in ("kafka writes", ["kafka"], 7, None, {"kafka": 1, "write": 1}):
        refused = refusal(signed(RSA, "RS256", claims(azp="mirror", scp=scp)), keys, rules)
        assert refused.status == "insufficient_scope"
        assert "the token lacks the scope" in str(refused)


def test_a_token_without_a_right_signature_is_refused(keys: Keys) -> None:
    good = signed(RSA, "RS256", claims())
    head, body, signature = good.split(".")
    more = unsigned({}, claims(sub="farshore")).split(".")[1]
    assert "signature is wrong" in str(refusal(f"{head}.{more}.{signature}", keys)), "claims of another"
    assert "signature is wrong" in str(refusal(f"{head}.{body}.", keys)), "cut off"
    assert "signature is wrong" in str(refusal(f"{head}.{body}.{signature[:-8]}", keys)), "cut short"
    assert "signature is wrong" in str(refusal(signed(rsa_key("evil"), "RS256", claims(), kid="rsa-1"), keys))
    assert "signature is wrong" in str(refusal(signed(ec_key("evil"), "ES256", claims(), kid="ec-1"), keys))


def test_alg_none_is_refused_in_every_spelling(keys: Keys) -> None:
    for name in ("none", "None", "NONE", "nOnE", ""):
        for kid in ({}, {"kid": "rsa-1"}):
            refused = refusal(unsigned({"alg": name, **kid}, claims()), keys)
            assert "is signed by none of RS256" in str(refused)
    assert "what was sent is no token" in str(refusal(unsigned({"kid": "rsa-1"}, claims()), keys)), "no alg at all"


def test_a_public_key_taken_for_a_shared_secret_does_not_let_in(keys: Keys) -> None:
    """The old trick: HS256 by the bytes of the public key, which everybody has."""
    for secret in (RSA.as_pem(private=False), json.dumps(RSA.as_dict(private=False)).encode(), b""):
        unfinished = unsigned({"alg": "HS256", "kid": "rsa-1"}, claims()).rstrip(".")
        mac = hmac.digest(secret, unfinished.encode(), hashlib.sha256)
        token = f"{unfinished}.{urlsafe_b64encode(mac).decode().rstrip('=')}"
        assert "is signed by none of RS256" in str(refusal(token, keys))


def test_which_key_is_asked_is_for_the_file_to_say_and_not_for_the_token(keys: Keys) -> None:
    good = claims()
    assert "by which key" in str(refusal(signed(RSA, "RS256", good, kid=None), keys))
    assert "does not know" in str(refusal(signed(RSA, "RS256", good, kid="rsa-2"), keys))
    assert "no token" in str(refusal(unsigned({"alg": "RS256", "kid": 1}, good), keys))
    assert "ES256, which is not of its key" in str(refusal(signed(EC, "ES256", good, kid="rsa-1"), keys))
    assert "RS256, which is not of its key" in str(refusal(signed(RSA, "RS256", good, kid="ec-1"), keys))
    brought = rsa_key("brought")
    token = signed(brought, "RS256", good, jwk=brought.as_dict(private=False), jku="https://evil.example/jwks")
    assert "does not know" in str(refusal(token, keys)), "the key that it brings along"
    assert "extensions (crit)" in str(refusal(signed(RSA, "RS256", good, crit=["b64"], b64=True), keys))
    for crit in (["exp"], ["kid", "exp"]):
        unknown = unsigned({"alg": "RS256", "kid": "rsa-1", "crit": crit, "exp": 1}, good)
        assert "extensions (crit)" in str(refusal(unknown, keys))
        assert "extensions (crit)" in str(refusal(unsigned({"alg": "RS256", "crit": crit}, good), keys))


@pytest.mark.parametrize(
    "token",
    [
        b"x",
        b"..",
        b"a.b",
        b"a.b.c.d",
        b"\xff.\xff.\xff",
        b".".join([b"e30"] * 3),
        unsigned([], {}).encode(),
        unsigned("RS256", {}).encode(),
        unsigned({"alg": ["RS256"]}, {}).encode(),
        unsigned({"alg": None}, {}).encode(),
        urlsafe_b64encode(b"[" * 20_000) + b".e30.e30",
        urlsafe_b64encode(b'{"alg":' + b"9" * 5000 + b"}") + b".e30.e30",
        signed(RSA, "RS256", b"[" * 15_000).encode(),
        signed(RSA, "RS256", [1]).encode(),
        signed(RSA, "RS256", b"\xff").encode(),
    ],
)
def test_what_is_no_token_is_told_in_plain_words(keys: Keys, token: bytes) -> None:
    assert str(refusal(token, keys)).startswith(("what was sent is no token", "the token is signed by none of"))


ONE = signed(RSA, "RS256", claims()).encode()


@given(at=st.integers(0, len(ONE) - 1), byte=st.integers(0, 255), cut=st.integers(0, 3), twice=st.booleans())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_token_that_was_changed_on_its_way_lets_in(keys: Keys, at: int, byte: int, cut: int, twice: bool) -> None:
    """Changed, cut out and repeated, anywhere: it is refused in words, and nothing else is raised."""
    changed = ONE[:at] + (ONE[at : at + 1] if twice else b"") + bytes([byte]) + ONE[at + cut :]
    assume(changed != ONE)
    refused = refusal(changed, keys)
    assert refused.status == "invalid_token"
    assert str(refused).isprintable()


def test_a_token_that_is_too_long_is_not_looked_at(keys: Keys) -> None:
    fits = signed(RSA, "RS256", claims(groups=["x" * 1000] * 20))
    assert shown(fits, keys).user == "shop"
    beyond = signed(RSA, "RS256", claims(groups=["x" * 1000] * 30))
    assert f"has {len(beyond)} bytes, and {TOKEN_BYTES_MAX} is the most" in str(refusal(beyond, keys))


def test_a_new_key_is_taken_from_the_file_and_one_that_is_gone_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write_keys(tmp_path / "jwks.json", RSA)
    tokens = Tokens(file, RULES, ManualClock().monotonic)
    old, new = (signed(key, "RS256", claims()).encode() for key in (RSA, rsa_key("rsa-2")))
    assert tokens.bearer(old, NOW_MS).user == "shop"
    with pytest.raises(TokenRefused, match="does not know"):
        tokens.bearer(new, NOW_MS)
    write_keys(file, RSA, rsa_key("rsa-2"))
    assert tokens.bearer(old, NOW_MS) == tokens.bearer(new, NOW_MS)
    with caplog.at_level(logging.WARNING):
        file.write_text('{"keys": [')
        assert tokens.bearer(old, NOW_MS).user == "shop", "half a file locks nobody out"
        file.unlink()
        assert tokens.bearer(old, NOW_MS).user == "shop"
    assert "it is no JSON; what was read before goes on until that is mended" in caplog.text
    write_keys(file, rsa_key("rsa-2"))
    assert tokens.bearer(new, NOW_MS).user == "shop"
    with pytest.raises(TokenRefused, match="does not know"):
        tokens.bearer(old, NOW_MS)


PUBLIC = RSA.as_dict(private=False)
SHORT = {**PUBLIC, "n": urlsafe_b64encode(b"\xff" * 128).decode().rstrip("=")}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("[" * 100_000, "it is no JSON"),
        ("half", "it is no JSON"),
        ([], "is no JSON Web Key Set"),
        ({}, "is no JSON Web Key Set"),
        ({"keys": PUBLIC}, "is no JSON Web Key Set"),
        ({"keys": ["rsa-1"]}, "is no JSON Web Key Set"),
        ({"keys": []}, "has no key that verifies signatures"),
        ({"keys": [OctKey.generate_key(256, parameters={"kid": "a"}).as_dict()]}, "has no key that verifies"),
        ({"keys": [{**PUBLIC, "use": "enc"}]}, "has no key that verifies"),
        ({"keys": [{**PUBLIC, "key_ops": ["encrypt"]}]}, "has no key that verifies"),
        ({"keys": [{**PUBLIC, "alg": "HS256"}]}, "has no key that verifies"),
        ({"keys": [RSA.as_dict(private=True)]}, "key 1 in {file} is a private one"),
        ({"keys": [EC.as_dict(private=True)]}, "key 1 in {file} is a private one"),
        ({"keys": [{**PUBLIC, "kid": None}]}, "key 1 in {file} has no kid"),
        ({"keys": [PUBLIC, EC.as_dict(private=False, kid="rsa-1")]}, "key 2 in {file} has kid 'rsa-1', which another"),
        ({"keys": [SHORT]}, f"key 1 in {{file}} has 1024 bits: RSA needs {RSA_BITS_MIN}"),
        ({"keys": [{**PUBLIC, "n": "+"}]}, "key 1 in {file} is no key of RSA"),
        ({"keys": [{**PUBLIC, "n": 7}]}, "key 1 in {file} is no key of RSA"),
        ({"keys": [{**PUBLIC, "e": ""}]}, "key 1 in {file} is no key of RSA"),
        ({"keys": [{"kty": "RSA", "kid": "a"}]}, "key 1 in {file} is no key of RSA"),
        ({"keys": [{**EC.as_dict(private=False), "x": "AAAA"}]}, "key 1 in {file} is no key of EC"),
    ],
)
def test_a_file_of_keys_that_cannot_be_taken_says_why(tmp_path: Path, document: object, why: str) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(AccessInvalid) as caught:
        read_keys(file)
    assert why.format(file=file) in str(caught.value)


def test_a_key_without_a_name_is_passed_over_with_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """RFC 7517 has `kid` optional; the whole file was refused for one, and keys that were retired went on."""
    nameless = {name: value for name, value in EC.as_dict(private=False).items() if name != "kid"}
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [nameless, PUBLIC]}))
    with caplog.at_level(logging.WARNING):
        assert read_keys(file).keys() == {"rsa-1"}
    assert caplog.messages == [f"key 1 in {file} is passed over: it has no kid, and no token could name it"]


def test_keys_of_other_kinds_and_uses_are_passed_over(tmp_path: Path) -> None:
    others = [
        {"kty": "AKP", "kid": "newer", "alg": "ML-DSA-44", "pub": "abc"},
        {"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": "abc"},
        ec_key("bitcoin", "secp256k1").as_dict(private=False),
        {**PUBLIC, "kid": "encrypts", "use": "enc"},
        {**PUBLIC, "alg": "RS512", "use": "sig", "key_ops": ["verify"]},
    ]
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": others}))
    found = read_keys(tmp_path / "jwks.json")
    assert {kid: one.algorithms for kid, one in found.items()} == {"rsa-1": ("RS512",)}
    assert isinstance(found["rsa-1"].key, (RSAKey, ECKey))
