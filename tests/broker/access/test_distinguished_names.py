"""Names of certificates as Java writes them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from broker.access.distinguished_names import CertificateUnreadable, distinguished_name, subject_of
from tests.broker.access.java_names import CN, NAMES, attribute, certificate, der, name
from tests.certificates import Authority

DUKE = name(attribute(CN, "Duke"))


@pytest.mark.parametrize(("subject", "text"), NAMES)
def test_a_name_is_written_as_java_does(subject: bytes, text: str) -> None:
    assert distinguished_name(subject) == text


def test_the_name_is_found_in_a_certificate(tmp_path: Path) -> None:
    assert subject_of(certificate(DUKE)) == DUKE
    assert subject_of(certificate(DUKE, version=b"")) == DUKE
    shown = ssl.PEM_cert_to_DER_cert(Authority(tmp_path).sign("shop").certificate.read_text())
    assert distinguished_name(subject_of(shown)) == "CN=shop"


def test_a_certificate_that_is_cut_anywhere_is_refused() -> None:
    whole = certificate(DUKE)
    for size in range(len(whole)):
        with pytest.raises(CertificateUnreadable):
            subject_of(whole[:size])
    for size in range(len(DUKE)):
        with pytest.raises(CertificateUnreadable):
            distinguished_name(DUKE[:size])


@pytest.mark.parametrize(
    "subject",
    [
        DUKE + b"\0",
        b"\x30\x80" + DUKE[2:] + b"\0\0",
        b"\x30\x81" + DUKE[1:],
        b"\x30\x82\0\x80" + bytes(128),
        der(0x30, b"\x3f\x31\x00"),
        der(0x30, attribute(CN, "a")),
        name(der(0x30, der(0x0C, b"a") + der(0x0C, b"a"))),
        name(der(0x30, der(0x06, b"\x55\x04\x03") + der(0x0C, b"a") + der(0x0C, b"b"))),
        name(attribute("", "a")),
        name(attribute("5504ff", "a")),
        name(attribute("55048003", "a")),
        name(attribute("80550403", "a")),
        name(attribute("55" + "ff" * 2000 + "01", "a")),
    ],
)
def test_what_is_no_name_in_der_is_refused(subject: bytes) -> None:
    with pytest.raises(CertificateUnreadable):
        distinguished_name(subject)
