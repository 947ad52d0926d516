"""Tokens for AWS MSK: what is signed, by whose credentials, and what is told where there are none. No network."""

from __future__ import annotations

import hashlib
import hmac
import os
import sys
from base64 import urlsafe_b64decode
from functools import reduce
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest

from broker.client.applications import client_options
from broker.client.errors import SecretUnreadable
from broker.client.security.settings import AwsIdentity, Mechanism, Sasl, Security
from broker.client.security.tokens import read_secret
from broker.client.site import Site

KEY, SECRET = "AKIDEXAMPLE", "canary-secret-7Qw"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """AWS's file of credentials, with none of this machine's."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    file.write_text(f"[other]\naws_access_key_id = AKIDOTHER\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return file


def asked_of(token: str) -> tuple[str, dict[str, str]]:
    """-> the address that is signed, and what stands in it."""
    where = urlsplit(urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    return f"{where.scheme}://{where.netloc}{where.path}", dict(parse_qsl(where.query))


def signature(given: dict[str, str], region: str) -> str:
    """AWS's signature, version 4, of what a broker of MSK is asked."""
    signed = {name: value for name, value in given.items() if name not in ("X-Amz-Signature", "User-Agent")}
    query = urlencode(sorted(signed.items()), quote_via=quote, safe="-_.~")
    request = f"GET\n/\n{query}\nhost:kafka.{region}.amazonaws.com\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    scope = given["X-Amz-Credential"].split("/", 1)[1]
    text = f"AWS4-HMAC-SHA256\n{given['X-Amz-Date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    secret = f"AWS4{SECRET}".encode()
    key = reduce(lambda key, part: hmac.digest(key, part.encode(), "sha256"), scope.split("/"), secret)
    return hmac.digest(key, text.encode(), "sha256").hex()


def test_what_is_signed_is_the_right_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    token = read_secret(AwsIdentity("eu-west-1"))
    where, given = asked_of(token)
    assert where == "https://kafka.eu-west-1.amazonaws.com/"
    assert (given["Action"], given["X-Amz-Expires"]) == ("kafka-cluster:Connect", "900")
    assert given["X-Amz-Credential"].split("/")[::2] == [KEY, "eu-west-1", "aws4_request"]
    assert given["X-Amz-Signature"] == signature(given, "eu-west-1")


async def test_a_profile_has_its_own_credentials_also_for_the_canarys_clients() -> None:
    identity = AwsIdentity("us-gov-west-1", "other")
    assert asked_of(read_secret(identity))[1]["X-Amz-Credential"].startswith("AKIDOTHER/")
    security = Security(sasl=Sasl(Mechanism.OAUTHBEARER, "", identity))
    options = await client_options(Site("east", "east.example:9098", security=security))
    token = await options["sasl_oauth_token_provider"].token()
    assert asked_of(token)[1]["X-Amz-Credential"].startswith("AKIDOTHER/")


@pytest.mark.parametrize(
    ("identity", "why"),
    [
        (AwsIdentity("eu-west-1"), "the token for AWS MSK in eu-west-1 cannot be signed, .*: there are none"),
        (AwsIdentity("eu-west-1", "mirror"), "in eu-west-1 of profile mirror cannot be signed, .*: there is no such"),
    ],
)
def test_credentials_that_cannot_be_had_are_told(identity: AwsIdentity, why: str) -> None:
    with pytest.raises(SecretUnreadable, match=why) as caught:
        read_secret(identity)
    assert "aws sts get-caller-identity" in caught.value.hint


def test_what_a_file_of_credentials_holds_is_not_shown(credentials: Path) -> None:
    credentials.write_text(f"[other\naws_secret_access_key = {SECRET}\n")
    with pytest.raises(SecretUnreadable, match="cannot be had: ConfigParseError") as caught:
        read_secret(AwsIdentity("eu-west-1", "other"))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_without_the_extra_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(SecretUnreadable, match="in eu-west-1 needs packages that are not installed") as caught:
        read_secret(AwsIdentity("eu-west-1"))
    assert caught.value.hint == "pip install 'farshore[aws]'"
