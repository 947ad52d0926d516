"""What Java's X500Principal and Kafka's SslPrincipalMapper make of names, recorded: tests/interop asks them again."""

from __future__ import annotations

from typing import Final

UTF8, PRINTABLE, T61, IA5, NUMERIC, BMP, VISIBLE = 0x0C, 0x13, 0x14, 0x16, 0x12, 0x1E, 0x1A
CN, OU, O = "550403", "55040b", "55040a"  # noqa: E741 - so it is called
UID, EMAIL = "0992268993f22c640101", "2a864886f70d010901"


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 + len(length)]) + length + content


def attribute(oid: str, value: str | bytes, tag: int = UTF8) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return der(0x30, der(0x06, bytes.fromhex(oid)) + der(tag, content))


def name(*parts: bytes) -> bytes:
    """`parts` in the certificate's order; one of several attributes is these together."""
    return der(0x30, b"".join(der(0x31, part) for part in parts))


def certificate(subject: bytes, version: bytes = der(0xA0, der(0x02, b"\2"))) -> bytes:
    """As much of one as stands before its name, and something behind."""
    fields = (der(0x02, b"\1"), der(0x30, b""), name(attribute(CN, "ca")), der(0x30, b""), subject, der(0x30, b"key"))
    return der(0x30, der(0x30, version + b"".join(fields)) + der(0x30, b"") + der(0x03, b"\0signature"))


def _of_cn(value: str | bytes, tag: int = UTF8) -> bytes:
    return name(attribute(CN, value, tag))


NAMES: Final = [
    (
        name(attribute("550406", "US", PRINTABLE), attribute(OU, "Users"), attribute(CN, "Duke")),
        "CN=Duke,OU=Users,C=US",
    ),
    (name(attribute(CN, "a") + attribute(UID, "b")), "CN=a+UID=b"),
    (name(attribute(UID, "b") + attribute(CN, "a")), "UID=b+CN=a"),
    (
        name(attribute(O, "Shop"), attribute(OU, "CN=admin"), attribute(CN, "mallory")),
        r"CN=mallory,OU=CN\=admin,O=Shop",
    ),
    (
        name(attribute(CN, "mallory"), attribute(EMAIL, "CN=admin", IA5)),
        "1.2.840.113549.1.9.1=#1608434e3d61646d696e,CN=mallory",
    ),
    (name(attribute("550405", "7", PRINTABLE)), "2.5.4.5=#130137"),
    (name(attribute("883703", "7")), "2.999.3=#0c0137"),
    (name(), ""),
    (name(b""), ""),
    (_of_cn(""), "CN="),
    (_of_cn("a,b"), r"CN=a\,b"),
    (_of_cn('a+"b"'), r"CN=a\+\"b\""),
    (_of_cn("#a#b"), r"CN=\#a\#b"),
    (_of_cn("a=b"), r"CN=a\=b"),
    (_of_cn("a<b>;"), r"CN=a\<b\>\;"),
    (_of_cn(r"a\b"), r"CN=a\\b"),
    (_of_cn("  a b  "), r"CN=\ \ a b\ \ "),
    (_of_cn(" "), r"CN=\ "),
    (_of_cn("  "), r"CN=\ \ "),
    (_of_cn(" #"), r"CN=\ \#"),
    (_of_cn("\ra\r\n"), "CN=\\\ra\r\n"),
    (_of_cn("\na\r"), "CN=\na\\\r"),
    (_of_cn("a\0b"), r"CN=a\00b"),
    (_of_cn("é😀\t/*'"), "CN=é😀\t/*'"),
    (_of_cn("\u00a0a\u2028"), "CN=\u00a0a\u2028"),
    (_of_cn("\ufeffa"), "CN=\ufeffa"),
    (_of_cn("André".encode("latin-1"), T61), "CN=Andr\ufffd"),
    (_of_cn(b"\xc3(\xe2\x82\xf0\x9f\x98x\xff"), "CN=\ufffd(\ufffd\ufffdx\ufffd"),
    (_of_cn(b"\xed\xa0\x80\xed\x9f\xbf"), "CN=\ufffd\ud7ff"),
    (_of_cn(b"\xed\xa0"), "CN=\ufffd"),
    (_of_cn(b"\xed\xa0x\xed\xbf\xed"), "CN=\ufffdx\ufffd\ufffd"),
    (_of_cn("admin".encode("utf-16-be"), BMP), r"CN=\00a\00d\00m\00i\00n"),
    (_of_cn("a".encode("utf-32-be"), 0x1C), "CN=#1c0400000061"),
    (_of_cn("a=b", 0x1B), r"CN=a\=b"),
    (_of_cn("7", NUMERIC), "CN=#120137"),
    (_of_cn("a", VISIBLE), "CN=#1a0161"),
    (_of_cn("a" * 200), "CN=" + "a" * 200),
]
"""(a name in DER, its text)"""

_DUKE = "CN=Duke,OU=ServiceUsers,C=US"
RULES: Final = [
    ("DEFAULT", _DUKE, _DUKE),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", _DUKE, "Duke"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT", _DUKE, "duke"),
    ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", _DUKE, "DUKE@SERVICEUSERS"),
    ("RULE:^CN=(.*?)$/first $1/, DEFAULT", _DUKE, "first Duke,OU=ServiceUsers,C=US"),
    ("RULE:Duke/part of the name/,DEFAULT", _DUKE, _DUKE),
    (r"RULE:^CN=(.*?),.*$/a\/$1$2/", _DUKE, "a/Duke$2"),
    ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", r"CN=mallory,OU=CN\=admin,O=Shop", "mallory"),
    ("RULE:x(,)?y/no/,RULE:.*/yes/", "CN=a", "yesyes"),
    ("RULE:(.*)/$1!/", "CN=a", "CN=a!!"),
    ("RULE:CN=(.*?)/$1/", "CN=abc", "abc"),
    ("RULE:(x)?(.*)/$1-$2-$3-$12-$0/", "CN=a", "-CN=a-$3-2-CN=a--$3-2-"),
    (r"RULE:(.+)/a\/b\$1\\c\d/", "CN=a", r"a/b$1\cd"),
    ("RULE:(.+)/$01-$10-$11-$2/", "CN=a", "CN=a-CN=a0-CN=a1-$2"),
    ("RULE:.+/$0/", "CN=a", "CN=a"),
    ("RULE:(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)/$11 $1 $10 $12 $21 $111 $011/", "CN=abcdefgh", "h C g C2 N1 h1 h"),
    (r"RULE:CN=(\w+)/$1/,DEFAULT", "CN=é", "CN=é"),
    ("RULE:(?i)cn=é/x/,DEFAULT", "CN=É", "CN=É"),
    ("RULE:.+/x/", "CN=a\u000bb", "x"),
    ("RULE:(.+)/$1/U", "CN=straße", "CN=STRASSE"),
]
"""(rules, a name, whom they make of it)"""
