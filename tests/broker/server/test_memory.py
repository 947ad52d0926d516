"""The memory budget: bounded by limit plus one frame, and nobody waits for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.memory import RequestMemory

LIMIT = 100
FRAME_MAX = 60


class Frame:
    """A frame that asks for its memory in steps, as a connection does."""

    def __init__(self, memory: RequestMemory, steps: list[int]) -> None:
        self.memory = memory
        self.steps = steps
        self.held = 0
        self.awaits = 0

    def advance(self) -> None:
        if self.awaits or not self.steps:
            return
        size = self.steps.pop()
        if self.memory.acquire(self, size, self.granted):
            self.held += size
        else:
            self.awaits = size

    def granted(self) -> None:
        self.held += self.awaits
        self.awaits = 0

    @property
    def complete(self) -> bool:
        return not self.steps and not self.awaits


frames = st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=3), min_size=1, max_size=12)


@given(frames, st.data())
def test_all_frames_complete_within_the_budget_plus_one_frame(sizes: list[list[int]], data: st.DataObject) -> None:
    memory = RequestMemory(LIMIT)
    waiting = [Frame(memory, list(steps)) for steps in sizes]
    while waiting:
        for frame in data.draw(st.permutations(waiting)):
            frame.advance()
            assert memory.used_bytes == sum(other.held for other in waiting)
            assert memory.used_bytes <= LIMIT + FRAME_MAX
        progressed = [frame for frame in waiting if frame.complete]
        moving = [frame for frame in waiting if not frame.awaits]
        assert progressed or moving, "every frame waits for another one"
        for frame in progressed:
            waiting.remove(frame)
            memory.release(frame.held)
    assert memory.used_bytes == 0


def test_one_that_goes_away_while_waiting_gets_nothing_and_frees_the_overdraft() -> None:
    memory = RequestMemory(LIMIT)
    first, second, third = (Frame(memory, [80]) for _ in range(3))
    for frame in (first, second, third):
        frame.advance()
    assert (first.held, second.held, third.awaits) == (80, 80, 80)
    memory.abandon(third, third.held)
    memory.abandon(second, second.held)
    fourth = Frame(memory, [80])
    fourth.advance()
    assert (third.held, fourth.held, memory.used_bytes) == (0, 80, 160)
