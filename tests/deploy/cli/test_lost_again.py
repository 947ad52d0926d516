"""East is lost again when all has come back to it and the link was not let run yet: what is said to be typed works."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.limits import ClientLimits
from broker.client.log import append
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, encode_batch
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failback import (
    GROUPS,
    command,
    look_at_west,
    lose_and_go_on,
    wait_for_worker,
)
from tests.deploy.cli.test_stranded import WHERE, Operator
from tests.interop.servers import FarshoreBroker


@pytest.fixture
def lost_again(tmp_path: Path) -> Iterator[Operator]:
    """East is gone; west is standby, and has where its groups were when they left it."""
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        operator = Operator(tmp_path, east.bootstrap, west.bootstrap)
        asyncio.run(lose_and_go_on(operator))
        with command(operator, "mirror", "run", "--link", "west-east"):
            wait_for_worker(operator)
            operator.run("switchover --link west-east --yes --set-back old")
        east.kill9()
        yield operator


def commands_of(operator: Operator) -> tuple[str, list[str]]:
    """What a failover is refused for, and the commands of its hint."""
    refused = operator.run("failover --link east-west --allow-data-loss --yes -o json", ExitCode.REFUSED)
    (reason,) = [one["reason"] for one in json.loads(refused.stdout)["refusals"]]
    hint = " ".join(refused.stderr.split())
    return reason, re.findall(r"`farshore ([^`]+)`", hint)


def takes_writes(operator: Operator) -> bool:
    """Of a client that is none of farshore's."""
    return asyncio.run(_takes_writes(operator))


async def _takes_writes(operator: Operator) -> bool:
    limits = ClientLimits(retry_timeout_ms=4_000)
    async with Cluster(operator.link.target, client_id="shop", limits=limits) as cluster:
        try:
            await append(cluster, WHERE, encode_batch([Record(0, 1, None, b"new")]))
        except KafkaError as refused:
            if refused.code is not ErrorCode.NOT_ENOUGH_REPLICAS:
                raise
            return False
    return True


def test_the_other_site_takes_writes_again_by_what_the_refusal_says(lost_again: Operator) -> None:
    """It named `operation show` and `link resume`: no site took writes, and of a link without groups nothing helped."""
    _, at_west = asyncio.run(look_at_west(lost_again.link))
    assert not takes_writes(lost_again)
    reason, commands = commands_of(lost_again)
    assert reason == "target_was_left"
    (thaw,) = [one for one in commands if one.startswith("site thaw")]
    assert "--topic flights" in thaw, "and nothing else that is closed there"
    lost_again.run(f"{thaw} --yes")
    assert takes_writes(lost_again)
    _, goes_on = asyncio.run(look_at_west(lost_again.link))
    assert {**goes_on, "done": ()} == {**at_west, "done": ()}, "where each stood"


def test_or_groups_go_on_there_by_their_names_and_the_loss_is_stated(lost_again: Operator) -> None:
    _, at_west = asyncio.run(look_at_west(lost_again.link))
    _, commands = commands_of(lost_again)
    (failover,) = [one for one in commands if one.startswith("failover ")]
    named = " ".join(f"--group {group}" for group in GROUPS)
    result = json.loads(lost_again.run(f"{failover} {named} --yes -o json").stdout)
    assert (result["verified"], result["loss"]["certainty"]) == (True, "at_least")
    assert takes_writes(lost_again)
    _, goes_on = asyncio.run(look_at_west(lost_again.link))
    assert {**goes_on, "done": ()} == {**at_west, "done": ()}, "where each stood"
