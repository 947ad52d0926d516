"""What was taken from a file is not believed for longer than it takes to read what stands there now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.base.reloaded import AGAIN_S, AccessInvalid, Reloaded
from tests.broker.clock import ManualClock


class OneFile:
    """Of users, one a line; `why`: it cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "users"
        self.file.write_text("eve\nshop")
        self.why, self.reads = "", 0
        self.clock = ManualClock()
        self.reloaded = Reloaded([self.file], self._load, self.clock.monotonic)

    def _load(self) -> list[str]:
        self.reads += 1
        if self.why:
            raise AccessInvalid(f"the users cannot be read: {self.why}")
        return self.file.read_text().split()

    def replace(self, text: str) -> None:
        new = self.file.with_name("new")
        new.write_text(text)
        new.rename(self.file)

    def pass_s(self, seconds: float) -> list[str]:
        self.clock.advance(int(seconds * 1000))
        return self.reloaded.current()


@pytest.fixture
def users(tmp_path: Path) -> OneFile:
    return OneFile(tmp_path)


def test_a_change_that_could_not_be_read_is_taken_once_it_can(users: OneFile, caplog: pytest.LogCaptureFixture) -> None:
    users.replace("shop")
    users.why = "Permission denied"
    assert users.reloaded.current() == ["eve", "shop"]
    assert users.pass_s(AGAIN_S) == ["eve", "shop"]
    users.why = ""
    assert users.pass_s(AGAIN_S) == ["shop"]
    refused, again = caplog.messages
    assert refused == "the users cannot be read: Permission denied; what was read before goes on until that is mended"
    assert again == f"{users.file} was read anew: it is in order again"


def test_it_is_tried_again_once_a_second_and_at_each_other_change(users: OneFile) -> None:
    users.replace("shop")
    users.why = "Too many open files"
    for _ in range(5):
        users.reloaded.current()
    assert users.reads == 2
    users.pass_s(AGAIN_S / 2)
    assert users.reads == 2
    users.pass_s(AGAIN_S / 2)
    assert users.reads == 3
    users.replace("shop\nnew")
    users.reloaded.current()
    assert users.reads == 4


def test_another_reason_is_told_too(users: OneFile, caplog: pytest.LogCaptureFixture) -> None:
    users.replace("shop")
    for users.why in ("Permission denied", "Permission denied", "it is no JSON"):
        users.pass_s(AGAIN_S)
    assert [line.partition(";")[0].rpartition(": ")[2] for line in caplog.messages] == [
        "Permission denied",
        "it is no JSON",
    ]


def test_a_file_that_is_back_as_it_was_is_in_order(users: OneFile, caplog: pytest.LogCaptureFixture) -> None:
    users.file.rename(users.file.with_name("away"))
    users.why = "No such file or directory"
    users.reloaded.current()
    users.why = ""
    users.file.with_name("away").rename(users.file)
    assert users.pass_s(AGAIN_S) == ["eve", "shop"]
    assert caplog.messages[1:] == [f"{users.file} was read anew: it is in order again"]


def test_other_rights_alone_are_a_change(users: OneFile, caplog: pytest.LogCaptureFixture) -> None:
    before = users.file.stat()
    os.utime(users.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    while users.file.stat().st_ctime_ns == before.st_ctime_ns:
        users.file.chmod(0o600)
    users.reloaded.current()
    assert users.reads == 2


def test_what_did_not_change_is_not_read_again(users: OneFile) -> None:
    for _ in range(3):
        users.pass_s(AGAIN_S)
    assert users.reads == 1
