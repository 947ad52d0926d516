"""From Apache Kafka 3.9 to 4.3 with their StandardAuthorizer: ACLs are carried, held back, given and taken back."""

from __future__ import annotations

from pathlib import Path

from tests.deploy.cli.rights_stage import RightsStage
from tests.deploy.cli.test_acls import goes_from_standby_to_promotion_and_back, prepare
from tests.interop.locked import SCRAM, USER, AuthorizingKafkaServer


def test_from_standby_to_promotion_and_back(tmp_path: Path) -> None:
    with (
        AuthorizingKafkaServer("3.9.1", tmp_path / "east") as east,
        AuthorizingKafkaServer("4.3.0", tmp_path / "west") as west,
    ):
        stage = RightsStage(tmp_path, east, west)
        prepare(stage)
        goes_from_standby_to_promotion_and_back(stage)
        users = stage.json("acls users")["items"]
        stage.give([])
        refused = stage.run("acls users")
        assert "CLUSTER_AUTHORIZATION_FAILED" in refused.err, "Kafka does not answer who asks for all, and may not"
        assert {one["mechanism"] for one in users if one["user"] == USER and one["iterations_at_target"]} == {*SCRAM}
