"""A switchover with exactly the rights that `farshore link rights` prints for it, and without each one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.wire.vocabulary import AclOperation
from deploy.rights import RIGHTS
from deploy.rights_names import At, Thing
from tests.chaos_runs.warm_commands import Said
from tests.deploy.cli.rights_stage import PAIRS, Pair, Right, RightsStage, names, rights_stage
from tests.mirror.harness import make_topic

GONE_WITHOUT = {(At.TARGET, Thing.ENDS), (At.TARGET, Thing.REPLAYS)}
"""A move goes on, and nobody knows later what came behind its fence, or what was replayed of what was left before."""
OF_BACKS = {Thing.STATES_BACK, Thing.ENDS_BACK, Thing.PRODUCERS_BACK}
"""The link has no link back."""
SWITCHOVER = [
    (need.at, need.thing, operation)
    for need in RIGHTS["switchover"]
    if need.thing not in OF_BACKS
    for operation in need.operations
]
TOLD_LATER = {
    (At.TARGET, Thing.TOPICS, AclOperation.READ),
    (At.TARGET, Thing.TOPICS, AclOperation.WRITE),
    (At.TARGET, Thing.CANARY, AclOperation.READ),
    (At.TARGET, Thing.CANARY, AclOperation.WRITE),
    (At.TARGET, Thing.STATE, AclOperation.WRITE),
    (At.TARGET, Thing.OFFSETS, AclOperation.DESCRIBE),
    (At.TARGET, Thing.OPERATIONS, AclOperation.CREATE),
    (At.TARGET, Thing.OPERATIONS, AclOperation.READ),
    (At.TARGET, Thing.OPERATIONS, AclOperation.WRITE),
    (At.TARGET, Thing.FENCES, AclOperation.WRITE),
    (At.TARGET, Thing.FENCE_OF_GROUPS, AclOperation.WRITE),
    (At.TARGET, Thing.FENCE_OF_MOVES, AclOperation.WRITE),
}
"""What a plan does not need, only a move."""
SAVES_REQUESTS = {(At.SOURCE, Thing.OFFSETS, AclOperation.DESCRIBE)}
"""Without it all groups are asked by name for what they have pending, which takes longer and says the same."""


@contextmanager
def mirrored(folder: Path, pair: Pair) -> Iterator[RightsStage]:
    """Two sites of their own: a move changes them."""
    with rights_stage(folder, pair) as stage:
        stage.declare("east-west", "flights", "analysts")
        stage.fill("flights", "analysts")
        stage.at("east", lambda cluster: make_topic(cluster, "__farshore-canary-east-west"))
        with stage.mirror():
            stage.await_mirrored()
            yield stage


def without(stage: RightsStage, command: str, at: int | None, line: str) -> tuple[Right | None, Said]:
    """The command with its rights, but for the one at this place."""
    rights = stage.printed(command)
    assert len(rights) == sum(len(need.operations) for need in RIGHTS[command] if need.thing not in OF_BACKS)
    missing = None if at is None else rights[at]
    stage.give(right for right in rights if right != missing)
    return missing, stage.run(line)


def told_later() -> list[Any]:
    """Every second one: which rights a command asks for is held against the broker in `test_recorded_rights.py`."""
    rights = [one for one in SWITCHOVER if one in TOLD_LATER]
    return [pytest.param(one, marks=[pytest.mark.slow] if at % 2 else []) for at, one in enumerate(rights)]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_plan_says_which_right_is_missing(pair: Pair, tmp_path: Path) -> None:
    with mirrored(tmp_path, pair) as stage:
        missing, planned = without(stage, "switchover", None, "switchover --dry-run")
        assert planned.code == 0, planned.err
        untold = set()
        for place, right in enumerate(SWITCHOVER):
            if right[:2] in GONE_WITHOUT:
                continue
            missing, planned = without(stage, "switchover", place, "switchover --dry-run")
            assert missing is not None
            if not names(missing, planned.out + planned.err):
                assert planned.code == 0, planned.err
                untold.add(right)
    assert [
        f"{at.value} {thing.name} {operation.name}" for at, thing, operation in untold ^ (TOLD_LATER | SAVES_REQUESTS)
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_a_plan_without_a_source_says_which_right_is_missing_at_the_target(pair: Pair, tmp_path: Path) -> None:
    with mirrored(tmp_path, pair) as stage:
        rights = stage.printed("failover")
        needed = [(need.at, need.thing, each) for need in RIGHTS["failover"] for each in need.operations]
        assert len(rights) == len(needed)
        stage.east.stop()
        untold = set()
        for missing, which in zip(rights, needed, strict=True):
            stage.give((right for right in rights if right != missing), sites=("west",))
            planned = stage.run("failover --dry-run --allow-data-loss")
            if not names(missing, planned.out + planned.err):
                assert planned.code == 0, planned.err
                untold.add(which)
    unneeded = {*TOLD_LATER, (At.TARGET, Thing.PRODUCERS, AclOperation.READ)}  # there is no source to hold it against
    unneeded |= {each for each in needed if each[:2] in GONE_WITHOUT}
    read = {(At.TARGET, Thing.TOPICS, AclOperation.READ)}  # needed now, where the map leaves something open
    assert [f"{at.value} {thing.name} {operation.name}" for at, thing, operation in (untold ^ unneeded) - read] == []


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("command", ["switchover --yes", "failover --yes --allow-data-loss"])
def test_a_move_needs_no_other_rights(command: str, pair: Pair, tmp_path: Path) -> None:
    with mirrored(tmp_path, pair) as stage:
        word = command.split()[0]
        if word == "failover":
            stage.east.stop()
            rights = stage.printed(word)
            stage.give((right for right in rights), sites=("west",))
            said = stage.run(command)
        else:
            _, said = without(stage, word, None, command)
        assert said.code == 0, said.err
        assert "AUTHORIZATION_FAILED" not in said.out + said.err


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("right", told_later(), ids=lambda one: f"{one[1].name}-{one[2].name}")
def test_a_move_says_which_right_is_missing(right: tuple[At, Thing, AclOperation], pair: Pair, tmp_path: Path) -> None:
    with mirrored(tmp_path, pair) as stage:
        missing, said = without(stage, "switchover", SWITCHOVER.index(right), "switchover --yes")
        assert missing is not None
        assert said.code == 1
        text = " ".join((said.out + said.err).split())
        if right[1:] in (
            (Thing.TOPICS, AclOperation.WRITE),
            (Thing.CANARY, AclOperation.WRITE),
        ):  # it is moved, and not verified
            assert "not_fenced" in text
            assert missing.name in text
            assert "lacks Write on the topic" in text
        elif right[1] is Thing.FENCE_OF_GROUPS:
            assert "may use the transactional ids farshore-LINK and farshore-LINK.groups" in text
        else:
            assert names(missing, text), text
