"""Who a client is by its certificate: the distinguished name, and Kafka's rules that shorten it (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError
from broker.wire.errors import ErrorCode

ANONYMOUS: Final = "User:ANONYMOUS"
DEFAULT_RULES: Final = "DEFAULT"
# As Java writes them (RFC 2253); what else a name has is called as OpenSSL calls it.
_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_PART: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))\s*(?:,|$)")
_SPECIAL: Final = re.compile(r'([,+"\\<>;])')


class PrincipalRefused(BrokerError):
    """A certificate whose name no rule takes, or makes that of who shows none."""

    error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    hint = "add a rule for it, or DEFAULT, to ssl_principal_mapping_rules"


class PrincipalRules:
    """`RULE:pattern/replacement/[LU]` and `DEFAULT`, separated by commas; the first that takes the whole name holds."""

    def __init__(self, rules: str = DEFAULT_RULES) -> None:
        """Raises ValueError."""
        self._rules: list[tuple[re.Pattern[str] | None, str, str]] = []
        at = 0
        while at < len(rules):
            found = _RULE.match(rules, at)
            if found is None:
                raise ValueError(
                    f"{rules[at:]!r} is no rule: write RULE:pattern/replacement/, with L or U behind, or DEFAULT"
                )
            default, pattern, replacement, case = found.groups()
            try:
                self._rules.append((None if default else re.compile(pattern), replacement or "", case or ""))
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
            at = found.end()

    def principal(self, certificate: Mapping[str, Any] | None) -> str:
        """Of a certificate as `ssl` gives it; None or empty: there is none. Raises PrincipalRefused."""
        if not certificate:
            return ANONYMOUS
        name = distinguished_name(certificate["subject"])
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return f"User:{name}"
            found = pattern.fullmatch(name)
            if found is not None:
                principal = f"User:{_cased(_replaced(found, replacement), case)}"
                if principal == ANONYMOUS:
                    # He may have rights at a listener that this one does not reach.
                    raise PrincipalRefused(
                        f"ssl_principal_mapping_rules makes {principal} of the name {name!r}: so is called who shows "
                        "no certificate",
                        hint="have another certificate made, or change the rule",
                    )
                return principal
        raise PrincipalRefused(f"no rule of ssl_principal_mapping_rules takes the name {name!r}")


def _replaced(found: re.Match[str], replacement: str) -> str:
    def of(reference: re.Match[str]) -> str:
        number = int(reference[1])
        return (found[number] or "") if number <= found.re.groups else reference[0]

    return re.sub(r"\$(\d)", of, replacement.replace(r"\/", "/"))


def _cased(name: str, case: str) -> str:
    return {"L": name.lower(), "U": name.upper()}.get(case, name)


def distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """As RFC 2253 has it, the most specific part first."""
    return ",".join(
        "+".join(f"{_SHORT.get(key, key)}={_escaped(value)}" for key, value in part) for part in reversed(subject)
    )


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\1", value)
    if text.startswith((" ", "#")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and len(value) > 1 else text
