"""The link's state was deleted at the target, and then the source is lost: what is said, and how it goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import DEADLINE_S, Shell, append_records, two_sites, values_at
from tests.deploy.cli.test_pending_offsets import commit, committed
from tests.interop.servers import wait_until

RECORDS, READ = 40, 20
LINK_BACK = """
[[links]]
name = "west-east"
source = "west"
target = "east"
topics = ["flights"]
topic_names = "same"
groups = [".*"]
"""
STATE = "__farshore-offsets-east-west"


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Shell]:
    """East has died, and no worker runs; west has all records, and a group where it was last carried to."""
    with two_sites(tmp_path) as shell:
        append_records(shell.east, "first", RECORDS)
        commit(shell.east.bootstrap, READ)
        wait_until(lambda: committed(shell.west.bootstrap) > 0, DEADLINE_S, "the group at the target")
        wait_until(lambda: len(values_at(shell.west)) == RECORDS, DEADLINE_S, "the records")
        shell.close()
        shell.services.clear()
        shell.east.stop()
        admin = AdminClient({"bootstrap.servers": shell.west.bootstrap})
        admin.delete_topics([STATE])[STATE].result(DEADLINE_S)
        yield shell


def document(shell: Shell, line: str, expect: int) -> Any:
    return json.loads(shell.run(f"{line} -o json", expect).stdout)


def test_what_is_not_known_is_said_and_the_groups_go_on_at_a_time(lost: Shell) -> None:
    """It said that nothing was ever mirrored, that all that west had was lost, and to start a mirror; there was no way
    on.
    """
    before = committed(lost.west.bootstrap)
    (status,) = document(lost, "status", ExitCode.FINDINGS)["items"]
    assert [one["kind"] for one in status["findings"]] == ["site_lost", "state_lost"]
    assert status["findings"][1]["next_step"].endswith("farshore failover --link east-west --dry-run")
    (drill,) = document(lost, "drill", ExitCode.FINDINGS)["items"]
    kinds = {one["kind"] for one in drill["findings"]}
    assert kinds == {"site_lost", "state_lost", "map_lost", "group_unknown"}
    assert (drill["loss"]["offsets"], drill["loss"]["unseen_partitions"], drill["loss"]["likely_offsets"]) == (
        0,
        1,
        None,
    )
    asked = "failover --allow-data-loss"
    refused = document(lost, f"{asked} --dry-run", ExitCode.REFUSED)
    assert [one["reason"] for one in refused["refusals"]] == ["map_lost", "group_not_movable"]
    assert [(one["certainty"], one["offsets"]) for one in refused["losses"]] == [("unknown", None)]
    told = lost.run(f"{asked} --yes", ExitCode.REFUSED).stderr
    told = " ".join(told.split())
    assert "the offset map with it" in told
    assert "--to-datetime TIME" in told
    assert "lost: how much cannot be known" in told
    moved = document(lost, f"{asked} --to-datetime 2013-01-01T00:00:00Z --yes", ExitCode.DONE)
    assert moved["verified"]
    assert moved["loss"]["unseen_partitions"] == 1
    assert committed(lost.west.bootstrap) <= 1 < before, "at the first record, which may stand behind a marker"
    (status,) = document(lost, "status", ExitCode.FINDINGS)["items"]
    assert status["condition"] == "promoted"


def test_a_group_that_is_left_by_name_stays_where_it_was_carried_to(lost: Shell) -> None:
    before = committed(lost.west.bootstrap)
    moved = document(lost, "failover --allow-data-loss --leave-group app --yes", ExitCode.DONE)
    assert moved["verified"]
    assert committed(lost.west.bootstrap) == before > 0
    append_records(lost.west, "news", 3)
    lost.east.start()
    told = lost.run("stranded list", ExitCode.FINDINGS).stdout
    assert "what east alone has is not known" in " ".join(told.split()), "it said that it has all of it alone"
    refused = lost.run("link resume --dry-run", ExitCode.REFUSED).stderr
    assert "not known" in " ".join(refused.split())
    lost.run("site standby --site east --yes", ExitCode.DONE)
    with (lost.folder / "farshore.toml").open("a") as file:
        file.write(LINK_BACK)
    refused = lost.run("failback --link east-west --dry-run", ExitCode.REFUSED).stderr
    assert "the offset map with it" in " ".join(refused.split())
    lost.east.stop()
    shutil.rmtree(lost.east.folder)
    lost.east.start()
    lost.run("site standby --site east --yes", ExitCode.DONE)
    lost.begin("mirror run --link west-east")
    wait_until(lambda: values_at(lost.east) == values_at(lost.west), DEADLINE_S, "all that west has")
    wait_until(lambda: committed(lost.east.bootstrap) > 0, DEADLINE_S, "the group")
    lost.begin("mirror run --link east-west")
    lost.run("failback --link east-west --yes", ExitCode.DONE)
    assert len(values_at(lost.east)) == RECORDS + 3
