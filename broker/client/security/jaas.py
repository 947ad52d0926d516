"""What `sasl.jaas.config` of a client says, by the rules of Kafka's own reader. Pure; no error of it shows a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

FLAGS: Final = ("required", "requisite", "sufficient", "optional")
# Java's StreamTokenizer with the letters that Kafka adds; what comes first in the expression is tried first.
_TOKEN: Final = re.compile(
    r"""(?P<space>[\x00-\x20]+|//[^\r\n]*|/\*.*?\*/)
    |(?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\-\xa0-\U0010ffff]*)
    |"(?P<double>(?:[^"\\\r\n]|\\.)*)"
    |'(?P<single>(?:[^'\\\r\n]|\\.)*)'
    |(?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROLS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasMalformed(ValueError):
    """What Kafka would not read either."""


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """`module`: the class that logs in, by its full name."""

    module: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Token:
    """`is_mark`: it is "=" or ";", and was not quoted."""

    text: str
    is_mark: bool = False


_END: Final = _Token(";", is_mark=True)
_IS: Final = _Token("=", is_mark=True)


def parse_jaas(text: str) -> JaasLogin:
    """The one login in it. Raises JaasMalformed."""
    tokens = list(_tokens(text))
    words = [token.text for token in tokens[:2] if not token.is_mark]
    if len(words) < 2 or words[1].lower() not in FLAGS:
        raise JaasMalformed(f"begins with no class of a login and one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != _END:
        name, *rest = tokens[at : at + 3]
        if name.is_mark or len(rest) < 2 or rest[0] != _IS or rest[1].is_mark:
            raise JaasMalformed(f'has an option that is not NAME="VALUE", behind {_last_name(options)}')
        options[name.text] = rest[1].text
        at += 3
    if at == len(tokens):
        raise JaasMalformed("does not end with a semicolon")
    if at + 1 < len(tokens):
        raise JaasMalformed("has more than one login")
    return JaasLogin(words[0], options)


def _last_name(options: dict[str, str]) -> str:
    return list(options)[-1] if options else "the class"


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise JaasMalformed("has letters that belong into quotes, or a quote that does not end")
        at = found.end()
        match found.lastgroup:
            case "space":
                continue
            case "word":
                yield _Token(found.group())
            case "mark":
                yield _Token(found.group(), is_mark=True)
            case _:
                yield _Token(_ESCAPE.sub(_unescaped, found.group(found.lastgroup or "")))


def _unescaped(found: re.Match[str]) -> str:
    escaped = found.group(1)
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _CONTROLS.get(escaped, escaped)
