"""Kafka's rules that shorten the names of certificates."""

from __future__ import annotations

import pytest

from broker.access.principals import ANONYMOUS, PrincipalRefused, PrincipalRules
from tests.broker.access.java_names import RULES

NAME = "CN=Duke,OU=ServiceUsers,C=US"


@pytest.mark.parametrize(("rules", "name", "user"), RULES)
def test_the_first_rule_that_takes_the_whole_name_holds(rules: str, name: str, user: str) -> None:
    assert PrincipalRules(rules).principal(name) == f"User:{user}"


@pytest.mark.parametrize("rules", ["", "RULE:Duke/x/"])
def test_a_name_that_no_rule_takes_is_refused(rules: str) -> None:
    with pytest.raises(PrincipalRefused, match="CN=Duke,OU=ServiceUsers,C=US"):
        PrincipalRules(rules).principal(NAME)


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\u2029"])
def test_a_name_of_two_lines_is_refused(end: str) -> None:
    with pytest.raises(PrincipalRefused, match="has more than one line"):
        PrincipalRules().principal(f"CN=a{end}b")


def test_who_shows_none_is_anonymous() -> None:
    assert PrincipalRules("").principal(None) == ANONYMOUS


def test_nobody_with_a_certificate_is_called_as_who_shows_none() -> None:
    rules = "RULE:^CN=([^,]*).*$/$1/"
    assert PrincipalRules(rules).principal("CN=anonymous") == "User:anonymous"
    with pytest.raises(PrincipalRefused, match="makes User:ANONYMOUS of the name 'CN=anonymous'"):
        PrincipalRules(f"{rules}U,DEFAULT").principal("CN=anonymous")


@pytest.mark.parametrize(
    "rules",
    ["default", "RULE:a/b", "RULE:a/b/X", "RULE:(/b/", "DEFAULT DEFAULT", "DEFAULT,x", "RULE:a/$/", "RULE:a/$1/"],
)
def test_what_is_no_rule_is_told(rules: str) -> None:
    with pytest.raises(ValueError, match="is no r"):
        PrincipalRules(rules)


@pytest.mark.parametrize(
    "pattern",
    [
        "CN=[a-z&&[^b]]+.*",
        "CN=[a-z[0-9]]+.*",
        "CN=[[a]]+.*",
        "CN=[a-z--b]+.*",
        "CN=a{,3}.*",
        "CN=a{b}.*",
        "CN=a{3.*",
        "CN=a{99999999999999999999}",
        "(" * 5000 + ")" * 5000,
    ],
)
def test_a_pattern_that_java_takes_otherwise_or_refuses_is_told(pattern: str) -> None:
    with pytest.raises(ValueError, match="is no regular expression that Java and farshore take alike"):
        PrincipalRules(f"RULE:{pattern}/x/")


@pytest.mark.parametrize("pattern", [r"CN=[\[a&\]{,3}]+", r"CN=a\{,3}", "CN=a{1,3}", "CN=a{2}", "CN=a{1,}", "CN=[]a]+"])
def test_a_pattern_that_has_such_marks_for_themselves_is_taken(pattern: str) -> None:
    PrincipalRules(f"RULE:{pattern}/x/")
