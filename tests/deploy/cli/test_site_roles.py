"""`farshore site` as people and scripts run it: what is shown, asked, refused, and who may write then."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.limits import ClientLimits
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.records import Record
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import CONFIG, FLIGHTS, Shell
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import write

IMPATIENT = ClientLimits(retry_timeout_ms=1_000)


def written(site: FarshoreBroker) -> ErrorCode:
    """What becomes of a shop's record."""

    async def try_to() -> ErrorCode:
        async with Cluster(Site("site", site.bootstrap), client_id="shop", limits=IMPATIENT) as cluster:
            try:
                await write(cluster, FLIGHTS, [Record(0, 1_700_000_000_000, None, b"x")])
            except KafkaError as error:
                return error.code
            return ErrorCode.NONE

    return asyncio.run(try_to())


def test_a_site_is_frozen_thawed_and_set_standby(tmp_path: Path) -> None:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        (tmp_path / "farshore.toml").write_text(CONFIG.format(east=east.bootstrap, west=west.bootstrap))
        shell = Shell(tmp_path, east, west)
        shell.run("topic create --site east --topic flights --partitions 1 --config retention.ms=-1", ExitCode.DONE)
        would_be = json.loads(shell.run("site freeze --site east --dry-run -o json", ExitCode.DONE).stdout)
        assert (would_be["role"], would_be["epoch"], would_be["takes_writes"]) == ("frozen", 1, False)
        unasked = shell.run("site freeze --site east", ExitCode.REFUSED)
        assert "east: active -> frozen (epoch 1): writes of clients wait, to every topic" in unasked.stderr
        assert written(east) is ErrorCode.NONE
        already = shell.run("site thaw --site east -o json", ExitCode.DONE)
        assert "east is active already: nothing was changed" in already.stderr, "and nobody is asked"
        assert json.loads(already.stdout)["epoch"] == 0
        frozen = json.loads(shell.run("site freeze --site east --reason disks --yes -o json", ExitCode.DONE).stdout)
        assert (frozen["role"], frozen["epoch"]) == ("frozen", 1)
        assert frozen["reason"].endswith(": disks")
        assert written(east) is ErrorCode.NOT_ENOUGH_REPLICAS
        shell.run("site thaw --site east --yes", ExitCode.DONE)
        assert written(east) is ErrorCode.NONE
        some = shell.run("site freeze --site east --topic other --topic o-.* --dry-run", ExitCode.DONE)
        assert "o-.*, other" in " ".join(some.stdout.split())
        shell.run("site freeze --site east --topic other --yes", ExitCode.DONE)
        assert written(east) is ErrorCode.NONE
        shell.run("site thaw --site east --yes", ExitCode.DONE)
        shell.run("site standby --site east --yes", ExitCode.DONE)
        shown = json.loads(shell.run("site role -o json", ExitCode.DONE).stdout)["items"]
        assert [(row["site"], row["role"], row["epoch"]) for row in shown] == [
            ("east", "standby", 5),
            ("west", "active", 0),
        ]
        two = shell.run("site thaw --site east --yes", ExitCode.REFUSED)
        assert "west is active: both would take writes" in two.stderr
        assert "farshore site standby --site west" in two.stderr
        shell.run("site standby --site west --topic flights --yes", ExitCode.DONE)
        part = shell.run("site thaw --site east --yes", ExitCode.REFUSED)
        assert "west is standby for flights only: both would take writes" in " ".join(part.stderr.split())
        shell.run("site thaw --site east --even-if-other-active --yes", ExitCode.DONE)
        shell.run("site standby --site east --topic flights --yes", ExitCode.DONE)
        shell.run("site thaw --site east --yes", ExitCode.DONE)
        shell.run("site standby --site east --yes", ExitCode.DONE)
        west.kill9()
        assert "west is unknown" in shell.run("site thaw --site east --yes", ExitCode.REFUSED).stderr
        shell.run("site thaw --site east --even-if-other-active --yes", ExitCode.DONE)
        assert written(east) is ErrorCode.NONE
        of_west = json.loads(shell.run("site role --site west -o json", ExitCode.DONE).stdout)["items"]
        assert [(row["role"], row["takes_writes"]) for row in of_west] == [("unknown", None)]


def test_what_closed_a_topic_is_opened_by_itself(tmp_path: Path) -> None:
    """Two links were moved, each with the command that its finding names; then something else is repaired."""
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        (tmp_path / "farshore.toml").write_text(CONFIG.format(east=east.bootstrap, west=west.bootstrap))
        shell = Shell(tmp_path, east, west)
        shell.run("topic create --site east --topic flights --partitions 1 --config retention.ms=-1", ExitCode.DONE)
        shell.run("site standby --site east --topic flights --yes", ExitCode.DONE)
        shell.run("site standby --site east --topic hotels --yes", ExitCode.DONE)
        assert written(east) is ErrorCode.NOT_ENOUGH_REPLICAS, "the second one did not open what the first one closed"
        asked = shell.run("site freeze --site east --topic cars", ExitCode.REFUSED)
        assert "writes of clients wait, to cars, flights, hotels; flights, hotels for good" in asked.stderr
        frozen = json.loads(shell.run("site freeze --site east --topic cars --yes -o json", ExitCode.DONE).stdout)
        assert (frozen["role"], frozen["topics"], frozen["standby"]) == (
            "frozen",
            ["cars", "flights", "hotels"],
            ["flights", "hotels"],
        )
        two = shell.run("site thaw --site east --yes", ExitCode.REFUSED)
        said = " ".join(two.stderr.split())
        assert "east is a standby site for flights, hotels, and west is active: both would take writes" in said
        assert "only what is frozen: `farshore site thaw --site east --topic cars`" in said
        thawed = json.loads(shell.run("site thaw --site east --topic cars --yes -o json", ExitCode.DONE).stdout)
        assert (thawed["role"], thawed["topics"], thawed["standby"]) == ("standby", ["flights", "hotels"], [])
        assert written(east) is ErrorCode.NOT_ENOUGH_REPLICAS
        mistyped = shell.run("site thaw --site east --topic car --yes", ExitCode.REFUSED)
        assert "east was not closed by car; it refuses flights, hotels" in mistyped.stderr
        shell.run("site thaw --site east --topic flights --yes", ExitCode.REFUSED)
        shell.run("site standby --site west --topic flights --yes", ExitCode.DONE)
        shell.run("site thaw --site east --topic flights --yes", ExitCode.DONE)
        assert written(east) is ErrorCode.NONE
        (row,) = json.loads(shell.run("site role --site east -o json", ExitCode.DONE).stdout)["items"]
        assert (row["role"], row["topics"]) == ("standby", ["hotels"])
        shell.run("site freeze --site east --yes", ExitCode.DONE)
        rest = " ".join(shell.run("site thaw --site east --yes", ExitCode.REFUSED).stderr.split())
        assert "farshore site thaw --site east --topic '.*'" in rest
        shell.run("site thaw --site east --topic .* --yes", ExitCode.DONE)
        (row,) = json.loads(shell.run("site role --site east -o json", ExitCode.DONE).stdout)["items"]
        assert (row["role"], row["topics"]) == ("standby", ["hotels"])
