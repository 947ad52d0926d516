"""Java's properties; what is expected here is what `java.util.Properties` says of the same text."""

from __future__ import annotations

import pytest

from broker.client.security.java_properties import PropertiesMalformed, parse_properties


def values(text: str) -> dict[str, str]:
    return {name: entry.value for name, entry in parse_properties(text).items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b\nc d\ne", {"a": "b", "c": "d", "e": ""}),
        ("  a  =  b  \r\n\tc\t:\td", {"a": "b", "c": "d"}),
        ("a = = b\rc : : d", {"a": "= b", "c": ": d"}),
        ("# a=b\n  ! c=d\n\n\f\ne=f # no comment", {"e": "f # no comment"}),
        ("a=b \\\n   c\\\r\n\td\ne=f", {"a": "b cd", "e": "f"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc=d", {"a": "b\\c=d"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("\\\n! a comment still\na=b", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("# a comment does not go on \\\na=b", {"a": "b"}),
        ("a\\ b\\=c\\:d = e", {"a b=c:d": "e"}),
        ("\\#a = \\!b\\q", {"#a": "!bq"}),
        ("a=\\u00e4\\u20AC\\t.\\n.\\f.\\r.", {"a": "ä€\t.\n.\f.\r."}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
        ("a=1\nb=2\na=3", {"a": "3", "b": "2"}),
        ("", {}),
    ],
)
def test_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


def test_an_entry_knows_the_line_at_which_it_begins() -> None:
    lines = {name: entry.line for name, entry in parse_properties("# 1\na=b\\\n\\\nc\n\nd=e").items()}
    assert lines == {"a": 2, "d": 6}


@pytest.mark.parametrize("text", ["a=1\nb=hunter2\\u12", "a=1\nb=\\uhunter2", "a=1\nb=hunter2\\uD83D"])
def test_what_java_cannot_read_is_told_by_its_line_and_not_shown(text: str) -> None:
    with pytest.raises(PropertiesMalformed, match="line 2") as caught:
        parse_properties(text)
    assert "hunter2" not in str(caught.value)
