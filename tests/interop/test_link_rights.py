"""Between Apache Kafka 3.9 and 4.3 with their StandardAuthorizer: what `farshore link rights` prints is enough."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.cli.rights_stage import LIMITED, RightsStage
from tests.deploy.cli.test_link_rights import LINES, said_by, text_of
from tests.interop.locked import AuthorizingKafkaServer
from tests.interop.servers import wait_until
from tests.mirror.harness import make_topic

OF_KAFKA = [command for command in LINES if not command.startswith("site")]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsStage]:
    """The mirror runs with its rights, and nobody else's."""
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
            yield stage


def test_commands_and_a_switchover_work_with_what_is_printed_for_each(stage: RightsStage) -> None:
    for command in OF_KAFKA:
        stage.give({*stage.printed("mirror run"), *stage.printed(command)})
        said = said_by(stage, command)
        assert "AUTHORIZATION_FAILED" not in text_of(said), f"{command}: {text_of(said)}"
        assert {one.code for one in said} <= ({0, 4} if command == "drill" else {0}), text_of(said)
    stage.give({*stage.printed("mirror run"), *stage.printed("switchover")})
    wait_until(lambda: stage.run("switchover --dry-run").code == 0, 60, "the switchover to be possible")
    moved = stage.run("switchover --yes")
    assert moved.code == 0, moved.err
    assert "AUTHORIZATION_FAILED" not in moved.out + moved.err


@pytest.mark.parametrize("command", ["topic describe", "link describe", "offsets translate", "operation list"])
def test_a_right_that_is_missing_is_told(stage: RightsStage, command: str) -> None:
    rights = stage.printed(command)
    last = rights[-1]
    stage.give(right for right in rights if right != last)
    text = text_of(said_by(stage, command))
    assert f"{last.resource.name}_AUTHORIZATION_FAILED" in text, text
    assert last.name in text
