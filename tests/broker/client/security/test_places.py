"""Secrets and certificates that stand in a file of properties, as Kafka's own tools take it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.errors import SecretUnreadable
from broker.client.security.places import Property, pem_of
from broker.client.security.settings import Secret


def test_a_secret_in_a_property_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    of_login = Secret(file=Property(file, "sasl.jaas.config", "password"))
    of_key = Secret(file=Property(file, "ssl.key.password"))
    for password in ("pencil", "eraser"):
        file.write_text(f'sasl.jaas.config=m required \\\n  password="{password}";\nssl.key.password: {password}-key\n')
        assert (of_login.read(), of_key.read()) == (password, f"{password}-key")


def test_a_property_has_the_letters_of_latin_1_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"ssl.key.password=\xe4\\u20ac\n")
    assert Secret(file=Property(file, "ssl.key.password")).read() == "ä€"


@pytest.mark.parametrize(
    "text", ["", "sasl.jaas.config=m required hunter2", "sasl.jaas.config=m required;", "other=hunter2\\u1"]
)
def test_one_that_cannot_be_had_is_told_by_its_place(text: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(SecretUnreadable, match=r"password of sasl\.jaas\.config in .*client\.properties") as caught:
        Secret(file=Property(file, "sasl.jaas.config", "password")).read()
    assert "hunter2" not in str(caught.value)
    assert caught.value.hint


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(SecretUnreadable, match="No such file"):
        Secret(file=Property(tmp_path / "client.properties", "ssl.key.password")).read()


LINES = "A" * 64 + "\n" + "B" * 3 + "=\n"
KEY = f"-----BEGIN PRIVATE KEY-----\n{LINES}-----END PRIVATE KEY-----\n"
OLD = (
    f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: A,1\n\n{LINES}-----END RSA PRIVATE KEY-----\n"
)
CERTIFICATE = KEY.replace("PRIVATE KEY", "CERTIFICATE")


def test_pem_in_one_line_is_as_pem_in_many() -> None:
    assert pem_of(CERTIFICATE.replace("\n", " ")) == pem_of(f"a comment\n{CERTIFICATE}") == CERTIFICATE
    assert pem_of(KEY + CERTIFICATE, "CERTIFICATE") == CERTIFICATE
    assert pem_of(KEY + CERTIFICATE, "PRIVATE KEY") == KEY
    assert pem_of(CERTIFICATE + OLD, "PRIVATE KEY") == OLD
    assert pem_of("nothing of that kind") == ""
