"""`farshore audit run` with just the rights that `farshore link rights` prints for it, and without each one of them."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.chaos_runs.warm_commands import Said
from tests.classes import CACHE
from tests.deploy.cli.rights_stage import KAFKAS, OURS, Pair, RightsStage, names, rights_stage
from tests.mirror.harness import make_topic

pytestmark = pytest.mark.slow
"""Each audit has a Spark of its own."""
CANARY = "__farshore-canary-east-west"


def audited(stage: RightsStage) -> Said:
    jars = sorted((CACHE / "spark" / version("pyspark")).glob("*.jar"))
    line = f"audit run --link east-west --output-dir {stage.folder / 'audit'}"
    return stage.run(line + "".join(f" --jars {jar}" for jar in jars))


@pytest.mark.parametrize("pair", [pytest.param(OURS, id="ours"), pytest.param(KAFKAS["3.9 to 4.3"], id="kafka")])
def test_an_audit_needs_what_is_printed_for_it(pair: Pair, tmp_path: Path) -> None:
    with rights_stage(tmp_path, pair) as stage:
        stage.declare("east-west", "flights", "analysts")
        stage.fill("flights", "analysts")
        stage.at("east", lambda cluster: make_topic(cluster, CANARY))
        with stage.mirror():
            stage.await_mirrored()
        rights = stage.printed("audit run")
        stage.give(rights)
        said = audited(stage)
        assert said.code == 0, said.err
        assert "AUTHORIZATION_FAILED" not in said.out + said.err
        for missing in rights:
            stage.give(right for right in rights if right != missing)
            said = audited(stage)
            text = said.out + said.err
            if missing.name == "flights":
                assert "no partition can be compared: not_readable" in text, f"{missing}: {text}"
            elif missing.name == CANARY:
                assert said.code == 0, "what it may not describe it does not look for"
            else:
                assert names(missing, text), f"{missing}: {text}"
