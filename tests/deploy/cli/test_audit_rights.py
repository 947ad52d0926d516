"""`farshore audit run` with just the rights that `farshore link rights` prints for it, and without each one of them."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from broker.wire.vocabulary import AclOperation
from tests.chaos_runs.warm_commands import Said
from tests.classes import CACHE
from tests.deploy.cli.rights_stage import KAFKAS, LIMITED, OURS, Pair, Right, RightsStage, rights_stage
from tests.mirror.harness import make_topic

pytestmark = pytest.mark.slow
"""Each audit has a Spark of its own."""
TOPIC, GROUP, CANARY = "flights", "analysts", "__farshore-canary-east-west"


def by_spark(stage: RightsStage, line: str) -> Said:
    jars = sorted((CACHE / "spark" / version("pyspark")).glob("*.jar"))
    return stage.run(
        f"{line} -o json --output-dir {stage.folder / 'audit'}" + "".join(f" --jars {jar}" for jar in jars)
    )


def audited(stage: RightsStage) -> Said:
    return by_spark(stage, "audit run --full --link east-west")


def is_told(missing: Right, text: str) -> bool:
    """Whose right on what it is, and where."""
    kind = missing.resource.name.lower()
    right = f"{missing.operation.word} on the {kind} {missing.name} ({kind.upper()}_AUTHORIZATION_FAILED)"
    return f"user {LIMITED} at {missing.site} lacks {right}" in text


@pytest.mark.parametrize(
    "pair",
    [pytest.param(OURS, id="ours"), *(pytest.param(pair, id=f"kafka {which}") for which, pair in KAFKAS.items())],
)
def test_an_audit_needs_what_is_printed_for_it(pair: Pair, tmp_path: Path) -> None:
    with rights_stage(tmp_path, pair) as stage:
        stage.declare("east-west", TOPIC, GROUP)
        stage.fill(TOPIC, GROUP)
        for topic in (CANARY, "__farshore-producers"):  # the second as of a link that goes on, or back, from there
            stage.at("east", lambda cluster, name=topic: make_topic(cluster, name, cleanup_policy="compact"))  # type: ignore[misc]
        with stage.mirror():
            stage.await_mirrored()
        rights = stage.printed("audit run")
        stage.give(rights)
        said = audited(stage)
        assert said.code == 0, said.err
        assert "AUTHORIZATION_FAILED" not in said.out + said.err
        assert (found := json.loads(said.out))["missing_rights"] == []
        assert (found["verdict"], found["groups"]["offsets_compared"]) == ("equal", 1)
        reading = [right for right in rights if (right.name, right.operation) == (TOPIC, AclOperation.READ)]
        tried = [(missing, [right for right in rights if right != missing]) for missing in rights]
        tried += [(one, less(rights, one)) for one in reading]
        for missing, given in tried:
            stage.give(given)
            said = audited(stage)
            text = " ".join((said.out + said.err).split())
            assert is_told(missing, text), f"{missing}: {text}"
            if missing.name in (GROUP, CANARY):  # the records are compared
                assert said.code == 0, text
        plan_says_it(stage, rights)
        a_right_that_goes_before_spark_reads_is_told(stage, rights)


def plan_says_it(stage: RightsStage, rights: list[Right]) -> None:
    """Of an audit in parts, and the file that travels does not say who logs in."""
    (missing,) = (right for right in rights if (right.site, right.name) == ("east", GROUP))
    stage.give(right for right in rights if right != missing)
    folder = stage.folder / "parts"
    said = stage.run(f"audit freeze --full --link east-west -o json --output-dir {folder}")
    assert (said.code, is_told(missing, said.err)) == (0, True), said.err
    lacked = {"site": "east", "operation": "Describe", "resource": "group", "name": GROUP}
    document = json.loads(said.out)
    assert document["missing_rights"] == [lacked]
    assert LIMITED not in Path(document["plan"]).read_text()


def a_right_that_goes_before_spark_reads_is_told(stage: RightsStage, rights: list[Right]) -> None:
    """It was a Java exception, without the site and the next step."""
    stage.give(rights)
    frozen = stage.run(f"audit freeze --full --link east-west --run-id lost --output-dir {stage.folder / 'audit'}")
    assert frozen.code == 0, frozen.err
    for missing in (right for right in rights if (right.name, right.operation) == (TOPIC, AclOperation.READ)):
        for given in (less(rights, missing), [right for right in rights if right != missing]):
            stage.give(given)
            said = by_spark(stage, f"audit digest --site {missing.site} --run lost")
            text = " ".join((said.out + said.err).split())
            assert (said.code, is_told(missing, text), "Exception" in text) == (1, True, False), text
            assert "`farshore link rights --command 'audit run'` prints all that are needed" in text


def less(rights: list[Right], right: Right) -> list[Right]:
    """With the right to describe it alone."""
    return [one._replace(operation=AclOperation.DESCRIBE) if one == right else one for one in rights]
