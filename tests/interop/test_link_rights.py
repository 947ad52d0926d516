"""From Apache Kafka 3.9 to 4.3, both with their StandardAuthorizer: what `farshore link rights` prints is needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.cli.rights_stage import LIMITED, RightsStage
from tests.deploy.cli.test_link_rights import LINES, needs_what_is_printed
from tests.interop.locked import AuthorizingKafkaServer
from tests.interop.servers import wait_until
from tests.mirror.harness import make_topic


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsStage]:
    """What is mirrored was mirrored with a mirror's rights alone; then it goes on with all."""
    folder = tmp_path_factory.mktemp("rights")
    with (
        AuthorizingKafkaServer("3.9.1", folder / "east") as east,
        AuthorizingKafkaServer("4.3.0", folder / "west") as west,
    ):
        stage = RightsStage(folder, east, west)
        stage.declare("east-west", "flights", "analysts")
        stage.fill("flights", "analysts")
        stage.at("east", lambda cluster: make_topic(cluster, "__farshore-canary-east-west"))
        stage.give(stage.printed("mirror run"))
        with stage.mirror(LIMITED) as log:
            stage.await_mirrored()
            assert "AUTHORIZATION_FAILED" not in log.read_text()
        with stage.mirror():
            wait_until(lambda: "event=started" in log.read_text(), 60, "the mirror to go on")
            yield stage


def test_commands_and_a_switchover_need_what_is_printed_for_each(stage: RightsStage) -> None:
    for command in LINES:
        if not command.startswith("site"):  # Kafka's have no roles
            needs_what_is_printed(stage, command)
    stage.give(stage.printed("switchover"))
    wait_until(lambda: stage.run("switchover --dry-run").code == 0, 60, "the switchover to be possible")
    moved = stage.run("switchover --yes")
    assert moved.code == 0, moved.err
    assert "AUTHORIZATION_FAILED" not in moved.out + moved.err
