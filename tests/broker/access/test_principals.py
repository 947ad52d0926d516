"""Names of certificates as Java writes them, and Kafka's rules that shorten them."""

from __future__ import annotations

import pytest

from broker.access.principals import ANONYMOUS, PrincipalRefused, PrincipalRules, distinguished_name

SUBJECT = ((("countryName", "US"),), (("organizationalUnitName", "ServiceUsers"),), (("commonName", "Duke"),))
CERTIFICATE = {"subject": SUBJECT}


def test_the_most_specific_part_stands_first() -> None:
    assert distinguished_name(SUBJECT) == "CN=Duke,OU=ServiceUsers,C=US"
    assert distinguished_name(((("commonName", "a"), ("userId", "b")),)) == "CN=a+UID=b"


@pytest.mark.parametrize(
    ("value", "written"),
    [("a,b", r"a\,b"), ('a+"b"', r"a\+\"b\""), ("#a", r"\#a"), (" a ", r"\ a\ "), (r"a\b", r"a\\b"), (" ", r"\ ")],
)
def test_what_has_a_meaning_in_a_name_is_escaped(value: str, written: str) -> None:
    assert distinguished_name(((("commonName", value),),)) == f"CN={written}"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "User:CN=Duke,OU=ServiceUsers,C=US"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "User:Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT", "User:duke"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", "User:DUKE@SERVICEUSERS"),
        ("RULE:^CN=(.*?)$/first $1/, DEFAULT", "User:first Duke,OU=ServiceUsers,C=US"),
        ("RULE:Duke/part of the name/,DEFAULT", "User:CN=Duke,OU=ServiceUsers,C=US"),
        (r"RULE:^CN=(.*?),.*$/a\/$1$2/", "User:a/Duke$2"),
        ("RULE:x(,)?y/no/,RULE:.*/yes/", "User:yes"),
    ],
)
def test_the_first_rule_that_takes_the_whole_name_holds(rules: str, principal: str) -> None:
    assert PrincipalRules(rules).principal(CERTIFICATE) == principal


@pytest.mark.parametrize("rules", ["", "RULE:Duke/x/"])
def test_a_name_that_no_rule_takes_is_refused(rules: str) -> None:
    with pytest.raises(PrincipalRefused, match="CN=Duke,OU=ServiceUsers,C=US"):
        PrincipalRules(rules).principal(CERTIFICATE)


@pytest.mark.parametrize("shown", [None, {}])
def test_who_shows_none_is_anonymous(shown: dict[str, object] | None) -> None:
    assert PrincipalRules("").principal(shown) == ANONYMOUS


def test_nobody_with_a_certificate_is_called_as_who_shows_none() -> None:
    shown = {"subject": ((("commonName", "anonymous"),),)}
    rules = "RULE:^CN=([^,]*).*$/$1/"
    assert PrincipalRules(rules).principal(shown) == "User:anonymous"
    with pytest.raises(PrincipalRefused, match="makes User:ANONYMOUS of the name 'CN=anonymous'"):
        PrincipalRules(f"{rules}U,DEFAULT").principal(shown)


@pytest.mark.parametrize("rules", ["default", "RULE:a/b", "RULE:a/b/X", "RULE:(/b/", "DEFAULT DEFAULT", "DEFAULT,x"])
def test_what_is_no_rule_is_told(rules: str) -> None:
    with pytest.raises(ValueError, match="is no r"):
        PrincipalRules(rules)
