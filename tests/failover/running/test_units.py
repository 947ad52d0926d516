"""Operations over a link that is cut into units: the same tests, and all of them are of all units."""

from __future__ import annotations

from functools import partial

import pytest

from tests.failover import stage
from tests.failover.running import test_operations
from tests.mirror.harness import link_between


@pytest.fixture(autouse=True)
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the stage's two partitions is another unit's."""
    monkeypatch.setattr(stage, "link_between", partial(link_between, units=2))


test_units_are_switched_over = test_operations.test_a_switchover_moves_everything_and_proves_it
test_units_without_a_source = test_operations.test_a_failover_without_the_source_states_the_least_and_when_it_was_seen
test_units_whose_source_answers = test_operations.test_a_failover_while_the_source_answers_states_the_loss_exactly
test_units_amid_which_it_was_cut = test_operations.test_an_operation_cut_before_the_groups_moved_is_gone_on_with
