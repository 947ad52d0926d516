"""Certificates and keys in stores of PKCS #12 and in properties, before a broker that asks who comes."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from broker.base.address import Address
from broker.client.errors import CertificateRefused, SecurityInvalid
from broker.client.security.keystores import own_pair
from broker.client.security.places import Property
from broker.client.security.settings import Secret, Tls
from broker.wire.messages.list_groups import ListGroupsRequest
from tests.broker.client.peer import peer
from tests.broker.client.security.test_tls import answer, context, open_to, refusal
from tests.certificates import Authority, KeyPair, openssl

PASSWORD = "hunter2"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> KeyPair:
    return authority.sign("client")


@pytest.fixture(scope="module")
def asking(authority: Authority) -> ssl.SSLContext:
    """Of a broker that lets in nobody without a certificate of the authority."""
    return context(authority.sign("server"), clients_of=authority)


@pytest.fixture
def password(tmp_path: Path) -> Secret:
    (tmp_path / "password").write_text(PASSWORD)
    return Secret(file=tmp_path / "password")


async def let_in(asking: ssl.SSLContext, tls: Tls) -> None:
    async with peer(answer, tls=asking) as address:
        connection = await open_to(address, tls)
        await connection.request(ListGroupsRequest())
        await connection.close()


async def test_stores_of_pkcs12(
    asking: ssl.SSLContext, authority: Authority, client: KeyPair, password: Secret, tmp_path: Path
) -> None:
    ca, own = authority.pkcs12(PASSWORD), client.pkcs12(PASSWORD)
    await let_in(asking, Tls(ca, own, key_password=password, ca_password=password))
    await let_in(asking, Tls(authority.certificate, own, key_password=password))
    await let_in(asking, Tls(ca, client.certificate, client.key, ca_password=password))
    stranger = Authority(tmp_path).pkcs12(PASSWORD)
    with pytest.raises(CertificateRefused, match=str(stranger)):
        await let_in(asking, Tls(stranger, own, key_password=password, ca_password=password))


def in_properties(file: Path, authority: Authority, client: KeyPair) -> Tls:
    """In one line each, but for the key, whose lines go on."""
    key = "\\n\\\n  ".join(client.key.read_text().splitlines())
    file.write_text(
        f"ssl.truststore.certificates={' '.join(authority.certificate.read_text().split())}\n"
        f"ssl.keystore.certificate.chain={' '.join(client.certificate.read_text().split())}\nssl.keystore.key={key}\n"
    )
    names = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key")
    ca, chain, own_key = (Property(file, name) for name in names)
    return Tls(ca, chain, own_key)


async def test_pem_in_properties(asking: ssl.SSLContext, authority: Authority, client: KeyPair, tmp_path: Path) -> None:
    await let_in(asking, in_properties(tmp_path / "client.properties", authority, client))


async def test_an_encrypted_key_in_a_property(
    asking: ssl.SSLContext, authority: Authority, client: KeyPair, password: Secret, tmp_path: Path
) -> None:
    encrypted = tmp_path / "encrypted.key"
    openssl(tmp_path, *f"pkcs8 -topk8 -in {client.key} -out {encrypted} -passout pass:{PASSWORD}".split())
    tls = in_properties(tmp_path / "client.properties", authority, KeyPair(client.certificate, encrypted))
    assert "ENCRYPTED" in encrypted.read_text()
    await let_in(asking, Tls(tls.ca_file, tls.certificate_file, tls.key_file, password))
    with pytest.raises(SecurityInvalid, match=r"ssl\.keystore\.key in .* is no key, or not with this password"):
        await let_in(asking, tls)


async def test_an_encrypted_key_in_a_file_and_another_password(
    asking: ssl.SSLContext, authority: Authority, client: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL gives no reason for it."""
    encrypted = tmp_path / "encrypted.key"
    openssl(tmp_path, *f"ec -aes256 -in {client.key} -out {encrypted} -passout pass:{PASSWORD}".split())
    monkeypatch.setenv("KEY_PASSWORD", "another one")
    tls = Tls(authority.certificate, client.certificate, encrypted, Secret(environment="KEY_PASSWORD"))
    with pytest.raises(SecurityInvalid, match=r"encrypted\.key are no certificate and its key: a wrong password"):
        await let_in(asking, tls)


async def test_what_changes_in_them_holds_for_the_next_connection(
    asking: ssl.SSLContext, authority: Authority, client: KeyPair, password: Secret, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "other").sign("stranger")
    store, properties = tmp_path / "own.p12", tmp_path / "client.properties"
    for tls in (Tls(authority.certificate, store, key_password=password), in_properties(properties, authority, client)):
        for pair, is_known in ((client, True), (stranger, False), (client, True)):
            store.write_bytes(pair.pkcs12(PASSWORD).read_bytes())
            in_properties(properties, authority, pair)
            if is_known:
                await let_in(asking, tls)
            else:
                assert "does not take" in str(await refusal(asking, tls))


async def test_no_key_is_left_behind(
    asking: ssl.SSLContext, client: KeyPair, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "for a moment").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "for a moment"))
    await let_in(asking, in_properties(tmp_path / "client.properties", authority, client))
    assert list((tmp_path / "for a moment").iterdir()) == []


async def test_stores_that_cannot_be_opened(
    authority: Authority, client: KeyPair, password: Secret, tmp_path: Path
) -> None:
    """Told before anything is dialled, with what to do."""
    ca, own = authority.pkcs12(PASSWORD), client.pkcs12(PASSWORD)
    (tmp_path / "old.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (tmp_path / "damaged.p12").write_bytes(own.read_bytes()[:-7])
    (tmp_path / "wrong").write_text("wrong")
    wrong = Secret(file=tmp_path / "wrong")
    for tls, named in (
        (Tls(ca, ca_password=wrong), r"ca\.p12 cannot be opened: a wrong password"),
        (Tls(ca), r"ca\.p12 cannot be opened: it has a password"),
        (Tls(ca, own, ca_password=password), r"client\.p12 cannot be opened: it has a password"),
        (Tls(authority.certificate, own, key_password=wrong), r"client\.p12 cannot be opened: a wrong password"),
        (Tls(authority.certificate, ca, key_password=password), r"ca\.p12 holds no key"),
        (Tls(authority.certificate, own, client.key, password), r"client\.p12 is of PKCS #12 and has its key in it"),
        (Tls(tmp_path / "damaged.p12", ca_password=password), r"damaged\.p12 cannot be opened"),
        (Tls(tmp_path / "old.jks"), r"old\.jks is a keystore of Java's own type"),
        (Tls(authority.certificate, tmp_path / "old.jks"), r"old\.jks is a keystore of Java's own type"),
        (Tls(ca, ca_password=Secret(environment="FARSHORE_TEST_NOT_SET")), r"the password of .*ca\.p12: the variable"),
        (Tls(Property(tmp_path / "nowhere", "ssl.truststore.certificates")), "nowhere cannot be read: No such file"),
        (Tls(Property(tmp_path / "wrong", "ssl.truststore.certificates")), "wrong holds no certificates"),
    ):
        with pytest.raises(SecurityInvalid, match=named) as caught:
            await open_to(Address("127.0.0.1", 1), tls)
        assert caught.value.hint
        assert PASSWORD not in str(caught.value)
    with pytest.raises(SecurityInvalid) as caught:
        await open_to(Address("127.0.0.1", 1), Tls(tmp_path / "old.jks"))
    assert "keytool -importkeystore" in caught.value.hint


def test_what_is_handed_to_others_is_pkcs8(client: KeyPair, tmp_path: Path, password: Secret) -> None:
    """As Java reads it, whatever the key is in."""
    older = tmp_path / "older.key"
    openssl(tmp_path, *f"ec -in {client.key} -out {older}".split())
    assert "BEGIN EC PRIVATE KEY" in older.read_text()
    pair = own_pair(Tls(None, client.certificate, older))
    assert pair.key == client.key.read_text()
    assert pair.chain == client.certificate.read_text()
    assert own_pair(Tls(None, client.both)) == pair
    assert own_pair(Tls(None, client.pkcs12(PASSWORD), key_password=password)) == pair
