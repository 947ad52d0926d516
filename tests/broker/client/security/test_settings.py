"""Where secrets come from, and that nothing shows them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from broker.client.errors import SecretUnreadable
from broker.client.security.settings import Mechanism, Sasl, Secret, Security, Tls, TokenEndpoint


def test_a_secret_is_read_anew_and_ends_before_its_line_break(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    secret = Secret(file=file)
    for text, read in (("first\n", "first"), (" second \r\n", " second "), ("third", "third")):
        file.write_text(text)
        assert secret.read() == read


def test_of_the_environment_and_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARSHORE_TEST_SECRET", "of the environment")
    assert Secret(environment="FARSHORE_TEST_SECRET").read() == "of the environment"
    assert Secret(command=(sys.executable, "-c", "print('of a command')")).read() == "of a command"


@pytest.mark.parametrize(
    "secret",
    [
        Secret(file=Path("/nowhere/secret")),
        Secret(file=Path("/")),
        Secret(file=Path("/dev/null")),
        Secret(environment="FARSHORE_TEST_NOT_SET"),
        Secret(command=("/nowhere/vault", "hunter2")),
        Secret(command=(sys.executable, "-c", "")),
        Secret(command=(sys.executable, "-c", "import sys; print('hunter2'); sys.exit('hunter2')")),
    ],
    ids=str,
)
def test_one_that_cannot_be_had_is_an_error_that_says_where_it_should_be(secret: Secret) -> None:
    with pytest.raises(SecretUnreadable) as caught:
        secret.read()
    assert str(secret) in str(caught.value)
    assert caught.value.hint
    assert "hunter2" not in str(caught.value)


def test_one_that_is_no_text_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"hunter2\xff")
    with pytest.raises(SecretUnreadable) as caught:
        Secret(file=file).read()
    assert caught.value.__cause__ is None
    assert "hunter2" not in str(caught.value)


def test_protocols_have_kafkas_names() -> None:
    sasl = Sasl(Mechanism.PLAIN, "farshore", Secret(environment="X"))
    securities = (Security(), Security(Tls()), Security(sasl=sasl), Security(Tls(), sasl))
    assert [security.protocol for security in securities] == ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


def test_no_form_of_where_secrets_come_from_shows_what_may_be_one() -> None:
    secret = Secret(command=("/usr/bin/vault", "--token=hunter2"))
    endpoint = TokenEndpoint("https://login.example/token?key=hunter2", "me", secret, "kafka", Path("ca.pem"))
    for shown in (secret, endpoint):
        held = Security(Tls(key_password=secret), Sasl(Mechanism.OAUTHBEARER, "", shown))
        for text in (repr(shown), str(shown), repr(held), f"{held}"):
            assert "hunter2" not in text
    assert repr(secret) == "Secret(the command /usr/bin/vault)"
    assert repr(endpoint) == (
        "TokenEndpoint('https://login.example/token?***', client_id='me', "
        "client_secret=Secret(the command /usr/bin/vault), scope='kafka', ca_file=PosixPath('ca.pem'))"
    )
