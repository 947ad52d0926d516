"""The file of users: no password in it, and nothing of it in what is shown."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from broker.access.users import new_credentials, read_users, write_users
from broker.base.reloaded import AccessInvalid
from broker.client.security.scram import HASHES
from broker.client.security.settings import Mechanism

PASSWORD = "hunter2-and-more"


def test_it_is_read_as_it_was_written_and_holds_no_password(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    users = {"shop": new_credentials(PASSWORD), "Ünï": new_credentials("another")}
    write_users(file, users)
    assert read_users(file) == users
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert PASSWORD not in file.read_text()
    write_users(file, {"shop": users["shop"]})
    assert list(read_users(file)) == ["shop"]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_credential_knows_its_password_and_does_not_show_itself(mechanism: Mechanism) -> None:
    one = new_credentials(PASSWORD)[mechanism]
    assert one.is_of(mechanism, PASSWORD)
    assert not one.is_of(mechanism, PASSWORD + "x")
    assert repr(one) == f"Credential(iterations={one.iterations})"
    assert new_credentials(PASSWORD)[mechanism].salt != one.salt


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"shop": {}}',
        '{"shop": "hunter2-and-more"}',
        '{"": {}}',
        '{"shop": {"PLAIN": "hunter2-and-more"}}',
    ],
)
def test_what_is_no_file_of_users_is_told_without_what_stands_in_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "users.json"
    file.write_text(text)
    with pytest.raises(AccessInvalid, match=r"users\.json") as caught:
        read_users(file)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("iterations", 100), ("iterations", "4096"), ("salt", ""), ("stored_key", "AAAA"), ("server_key", "hunter2!")],
)
def test_credentials_that_are_none_are_told(tmp_path: Path, key: str, value: object) -> None:
    file = tmp_path / "users.json"
    write_users(file, {"shop": new_credentials(PASSWORD)})
    document = json.loads(file.read_text())
    document["shop"]["SCRAM-SHA-256"][key] = value
    file.write_text(json.dumps(document))
    with pytest.raises(AccessInvalid, match="'shop' in"):
        read_users(file)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(AccessInvalid, match="No such file"):
        read_users(tmp_path / "none.json")
