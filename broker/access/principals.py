"""Who a client is by the name in its certificate: Kafka's rules that shorten it (KIP-371)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Final

from broker.errors import BrokerError
from broker.wire.errors import ErrorCode

ANONYMOUS: Final = "User:ANONYMOUS"
DEFAULT_RULES: Final = "DEFAULT"
_PART: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))\s*(?:,|$)")
# Where a line ends for Java, whose patterns take such a character otherwise than these here.
_LINE_END: Final = re.compile("[\n\r\x85\u2028\u2029]")
_ESCAPED: Final = r"\\(?:N\{[^}]*\}|.)"
# The group has what is something else for Java, or an error: a class that has a class or && in it, a brace that counts
# nothing.
_PIECES: Final = re.compile(
    rf"{_ESCAPED}|\[\^?\]?(?:{_ESCAPED}|(?!&&)[^\[\]\\])*\]|\{{\d+(?:,\d*)?\}}|([\[{{])|.", re.DOTALL
)
_REPLACED: Final = re.compile(r"\\(.)|\$(\d)(\d*)|(\$)", re.DOTALL)


class PrincipalRefused(BrokerError):
    """A certificate whose name no rule takes, or makes that of who shows none."""

    error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    hint = "add a rule for it, or DEFAULT, to ssl_principal_mapping_rules"


class PrincipalRules:
    """`RULE:pattern/replacement/[LU]` and `DEFAULT`, separated by commas; the first that takes the whole name holds."""

    def __init__(self, rules: str = DEFAULT_RULES) -> None:
        """Raises ValueError."""
        self._rules: list[tuple[re.Pattern[str] | None, Sequence[str | int], str]] = []
        at = 0
        while at < len(rules):
            found = _RULE.match(rules, at)
            if found is None:
                raise ValueError(
                    f"{rules[at:]!r} is no rule: write RULE:pattern/replacement/, with L or U behind, or DEFAULT"
                )
            default, pattern, replacement, case = found.groups()
            self._rules.append((None, (), "") if default else _rule(pattern, replacement, case))
            at = found.end()

    def principal(self, name: str | None) -> str:
        """Of a certificate's name (`distinguished_name`); None: there is none. Raises PrincipalRefused."""
        if name is None:
            return ANONYMOUS
        if _LINE_END.search(name):
            raise PrincipalRefused(
                f"the name {name!r} has more than one line",
                hint="have another certificate made, with a name of one line",
            )
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return f"User:{name}"
            if pattern.fullmatch(name) is not None:
                # Kafka's own: what takes the whole name may be found in it more than once, as `.*` is.
                principal = f"User:{_cased(pattern.sub(_made(replacement), name), case)}"
                if principal == ANONYMOUS:
                    # He may have rights at a listener that this one does not reach.
                    raise PrincipalRefused(
                        f"ssl_principal_mapping_rules makes {principal} of the name {name!r}: so is called who shows "
                        "no certificate",
                        hint="have another certificate made, or change the rule",
                    )
                return principal
        raise PrincipalRefused(f"no rule of ssl_principal_mapping_rules takes the name {name!r}")


def _rule(pattern: str, replacement: str, case: str) -> tuple[re.Pattern[str], Sequence[str | int], str]:
    """Raises ValueError."""
    told = f"{pattern!r} is no regular expression that Java and farshore take alike"
    for found in _PIECES.finditer(pattern):
        if found[1]:
            raise ValueError(f"{told}: the {found[1]} at position {found.start()}; write a \\ before what is itself")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Java's classes, as \w, are those of ASCII.
            compiled = re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise ValueError(f"{told}: {error}") from error
    return compiled, _pieces(replacement, compiled.groups), case


def _pieces(replacement: str, groups: int) -> list[str | int]:
    """Its texts, and the numbers of the groups between them, read as Java does. Raises ValueError."""
    pieces: list[str | int] = []
    at = 0
    for found in _REPLACED.finditer(replacement):
        escaped, first, digits, nothing = found.groups()
        pieces.append(replacement[at : found.start()])
        at = found.end()
        if escaped is not None:
            pieces.append(escaped)
            continue
        if nothing or (int(first) > groups == 0):
            raise ValueError(f"{replacement!r} is no replacement: write $1 for what the first group has, \\$ for a $")
        if int(first) > groups:
            pieces.append(found[0])
            continue
        # As many digits as name a group: with nine of them $12 is the first one, and a 2.
        number = int(first)
        while digits and number * 10 + int(digits[0]) <= groups:
            number, digits = number * 10 + int(digits[0]), digits[1:]
        pieces += [number, digits]
    return [*pieces, replacement[at:]]


def _made(pieces: Sequence[str | int]) -> Callable[[re.Match[str]], str]:
    return lambda found: "".join(piece if isinstance(piece, str) else found[piece] or "" for piece in pieces)


def _cased(name: str, case: str) -> str:
    return {"L": name.lower(), "U": name.upper()}.get(case, name)
