"""The name in a certificate, written as Java does it: Kafka's rules and ACLs are about that text."""

from __future__ import annotations

import re
from typing import Final

from broker.errors import BrokerError
from broker.wire.errors import ErrorCode

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_INTEGER: Final = 0x02
_OBJECT_IDENTIFIER: Final = 0x06
_VERSION: Final = 0xA0
# UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString: Java reads the bytes of each as UTF-8.
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
_SHORT: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TYPE_BYTES_MAX: Final = 64
# Half of a pair of UTF-16, in UTF-8, whole or cut short: one fault for Java, and one each byte for Python.
_SURROGATE: Final = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]?")
_FAULT: Final = "\ufffd".encode()
_SPECIAL: Final = re.compile(r'([,=+<>#;"\\])')
# What stands in no name that is written here: a long name of a type, and a bare = or # in a value that is no bytes.
_OTHERWISE: Final = re.compile(
    r"(?:.*(?<!\\)[,+])?(?:(?:emailAddress|serialNumber)=|[A-Za-z]+=(?!#[0-9a-f]{4,}(?:[,+]|\Z))"
    r"(?:\\.|[^\\,+=#])*[=#])",
    re.DOTALL,
)
_BLANKS_AT_AN_END: Final = re.compile(r"\A[ \r]+|[ \r]+\Z")


class CertificateUnreadable(BrokerError):
    error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    hint = "have another certificate made, whose name is in DER"


def subject_of(certificate: bytes) -> bytes:
    """The name in a certificate; both are DER. Raises CertificateUnreadable."""
    signed = _only(_only(certificate, _SEQUENCE, ends=True), _SEQUENCE)
    tag, _, behind = _element(signed)
    if tag == _VERSION:
        signed = behind
    for expected in (_INTEGER, _SEQUENCE, _SEQUENCE, _SEQUENCE):  # serial number, signature, issuer, validity
        tag, _, behind = _element(signed)
        if tag != expected:
            raise CertificateUnreadable("the certificate has no name where one belongs")
        signed = behind
    return signed[: len(signed) - len(_element(signed)[2])]


def distinguished_name(name: bytes) -> str:
    """Of a name in DER: as RFC 2253 has it, the most specific part first. Raises CertificateUnreadable."""
    parts = _parts(_only(name, _SEQUENCE, ends=True), _SET)
    return ",".join("+".join(map(_attribute, _parts(part, _SEQUENCE))) for part in reversed(parts))


def is_written_otherwise(name: str) -> bool:
    """Whether this, if it is to be the name of a certificate, is not as `distinguished_name` writes any. Pure."""
    return _OTHERWISE.match(name) is not None


def _attribute(attribute: bytes) -> str:
    tag, oid, value = _element(attribute)
    if tag != _OBJECT_IDENTIFIER:
        raise CertificateUnreadable("the certificate's name has a part without a type")
    kind = _dotted(oid)
    tag, text, behind = _element(value)
    if behind:
        raise CertificateUnreadable("the certificate's name has a part with two values")
    short = _SHORT.get(kind)
    if short is None or tag not in _TEXTS:
        return f"{short or kind}=#{value.hex()}"
    return f"{short}={_escaped(_SURROGATE.sub(_FAULT, text).decode(errors='replace'))}"


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\1", value).replace("\0", r"\00")
    return _BLANKS_AT_AN_END.sub(lambda blanks: "".join(f"\\{blank}" for blank in blanks[0]), text)


def _dotted(oid: bytes) -> str:
    is_type = bool(oid) and not oid[-1] & 0x80 and len(oid) <= _TYPE_BYTES_MAX
    numbers, number = [], 0
    for byte in oid if is_type else b"":
        # DER has each number in as few bytes as it takes.
        is_type = is_type and (number > 0 or byte != 0x80)
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not is_type:
        raise CertificateUnreadable("the certificate's name has a type that is none")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _only(data: bytes, expected: int, *, ends: bool = False) -> bytes:
    """The content of the first element; `ends`: there is nothing behind it."""
    tag, content, behind = _element(data)
    if tag != expected or (ends and behind):
        raise CertificateUnreadable("the certificate is none in DER")
    return content


def _parts(data: bytes, expected: int) -> list[bytes]:
    found = []
    while data:
        found.append(_only(data, expected))
        data = _element(data)[2]
    return found


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """-> its tag, its content, and what stands behind it."""
    length, at = (data[1], 2) if len(data) > 1 else (0x80, 0)
    is_der = length != 0x80 and data[0] & 0x1F != 0x1F
    if length > 0x80:
        at += length - 0x80
        length = int.from_bytes(data[2:at])
        # DER has each length in as few bytes as it takes.
        is_der = is_der and length > 0x7F and data[2] != 0
    if not is_der or len(data) < at + length:
        raise CertificateUnreadable("the certificate is none in DER")
    return data[0], data[at : at + length], data[at + length :]
