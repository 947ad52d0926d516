"""Two operations close the same topic by ACLs: who takes back his own does not open what the other one holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.acls import WriteDenial, known_denials
from failover.freezing.acl_freeze import AclFreeze
from failover.freezing.denials import SiteDenials, read_denials
from tests.failover.freezing.test_acl_freeze import BEFORE, locked
from tests.failover.stage import TOPIC


@pytest.mark.parametrize("first", ["a", "b"])
async def test_of_two_that_closed_the_same_topic_the_last_to_thaw_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    async with locked(tmp_path, monkeypatch) as there:
        cluster, denials = there.stage.source, SiteDenials(("User:*",))
        for operation_id in ("a", "b", "b"):
            await AclFreeze(cluster, operation_id).close(denials, [TOPIC])
        everybody = WriteDenial(TOPIC, "User:*")
        assert read_denials(await known_denials(cluster)).marks == {everybody: {"a", "b"}}
        await AclFreeze(cluster, first).undo()
        left = read_denials(await known_denials(cluster))
        assert everybody in left.there, "the other one still holds it"
        assert left.marks == {everybody: {"a", "b"} - {first}}
        for operation_id in ("a", "b"):
            await AclFreeze(cluster, operation_id).undo()
        assert there.east.acls == BEFORE
