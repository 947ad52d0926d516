"""Who is not let in is told why, by whom, as whom he came, and what to do: no reason looks like another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cli.terminal import ExitCode
from tests.chaos_runs.warm_commands import warm_commands
from tests.deploy.cli.locked_site import LIMITED, OWNER, PASSWORD, LockedSite

NOT_TOLD = "which it had not told yet"
REASONS = {
    "expired": f"shows a certificate that has expired; farshore comes as user {OWNER}, {NOT_TOLD}",
    "other name": f"shows a certificate that is not for localhost; farshore comes as user {OWNER}, {NOT_TOLD}",
    "wrong password": f"and user {OWNER}, by SCRAM-SHA-512: the broker refuses the login",
    "missing right": "topic t at east: TOPIC_AUTHORIZATION_FAILED",
}
NEXT_STEPS = {
    "expired": "have it renewed there",
    "other name": "write the name that the certificate has into bootstrap_servers",
    "wrong password": "check mechanism, username and password",
    "missing right": f"`farshore link rights` prints all that are needed); that is user {LIMITED} at east",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedSite]:
    with LockedSite(tmp_path_factory.mktemp("locked")) as site:
        yield site


@pytest.mark.parametrize("reason", REASONS)
def test_the_site_the_principal_and_the_next_step_are_told(reason: str, site: LockedSite, tmp_path: Path) -> None:
    site.show(site.authority.sign("server", days=-1 if reason == "expired" else 2))
    host = "localhost" if reason == "other name" else "127.0.0.1"
    user = LIMITED if reason == "missing right" else OWNER
    file = site.configure_client(tmp_path, user, "wrong" if reason == "wrong password" else PASSWORD, host)
    command = ["topic", "create", "--site", "east", "--topic", "t", "--partitions", "1"]
    said = warm_commands().run(["--config", str(file), *command])
    assert said.code == ExitCode.ERROR
    assert said.out == ""
    error, hint = said.err.splitlines()
    where = "topic t at east: " if reason == "missing right" else f"site east at {host}:{site.port} "
    assert error.startswith(f"error: {where}")
    assert hint.startswith("hint: ")
    assert [each for each, words in REASONS.items() if words in error] == [reason]
    assert [each for each, words in NEXT_STEPS.items() if words in hint] == [reason]
