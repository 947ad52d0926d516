"""How a fleet's workers log in to etcd, as farshore.toml says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.security.settings import Secret
from deploy.config import parse
from deploy.errors import ConfigError

FILE = '[sites.east]\nbootstrap_servers = "127.0.0.1:9092"\n[fleet]\netcd = ["127.0.0.1:2379"]\n'


@pytest.mark.parametrize(
    ("keys", "password"),
    [
        ("", None),
        ('user = "w"\npassword_file = "word"', Secret(file=Path("/etc/farshore/word"))),
        ('user = "w"\npassword_env = "WORD"', Secret(environment="WORD")),
        ('user = "w"\npassword_command = ["vault", "word"]', Secret(command=("vault", "word"))),
    ],
)
def test_a_password_is_read_where_it_stands_when_it_is_asked_for(keys: str, password: Secret | None) -> None:
    access = parse(FILE + keys, Path("/etc/farshore/farshore.toml")).fleet()
    assert access is not None
    assert access.password == password


@pytest.mark.parametrize(
    "keys",
    ['user = "w"', 'password_env = "WORD"', 'user = "w"\npassword_env = "WORD"\npassword_file = "word"'],
)
def test_a_user_has_one_password(keys: str) -> None:
    told = "fleet: .*user and one of password_file, password_env, password_command belong together"
    with pytest.raises(ConfigError, match=told):
        parse(FILE + keys, Path("farshore.toml"))
