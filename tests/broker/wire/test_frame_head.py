"""Frames come out whole and in order, however the bytes are cut."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.frame_head import BegunFrame, FrameHead, FrameRefused

CAPACITY_BYTES = 32


def head(size_max_bytes: int = 1_000) -> FrameHead:
    return FrameHead(CAPACITY_BYTES, size_min_bytes=1, size_max_bytes=size_max_bytes)


def received(stream: bytes, cuts: list[int]) -> list[bytes]:
    """The frames of the stream, received as both connections do, with at most the next of `cuts` bytes at a time."""
    reader, frames = head(), []
    large: bytearray | None = None
    wanted_bytes = 0
    turn = 0
    while stream:
        count = cuts[turn % len(cuts)]
        turn += 1
        if large is not None:
            taken = stream[: min(count, wanted_bytes - len(large))]
            large += taken
            stream = stream[len(taken) :]
            if len(large) == wanted_bytes:
                frames.append(bytes(large))
                large = None
            continue
        room = reader.room()
        assert len(room), "there is always room for more"
        taken = stream[: min(count, len(room))]
        room[: len(taken)] = taken
        stream = stream[len(taken) :]
        reader.add(len(taken))
        while (frame := reader.next_frame()) is not None:
            if isinstance(frame, BegunFrame):
                assert len(frame.beginning) < frame.size_bytes
                large, wanted_bytes = bytearray(frame.beginning), frame.size_bytes
            else:
                frames.append(bytes(frame))
    assert large is None
    return frames


@given(
    st.lists(st.binary(min_size=1, max_size=100), max_size=20), st.lists(st.integers(1, 70), min_size=1, max_size=10)
)
def test_however_the_bytes_are_cut_the_frames_are_the_same(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    assert received(stream, cuts) == frames


@pytest.mark.parametrize("size_bytes", [-1, 0, 1_001, 2**31 - 1])
def test_a_size_out_of_bounds_is_refused_before_anything_is_kept_for_it(size_bytes: int) -> None:
    reader = head()
    reader.room()[:4] = struct.pack(">i", size_bytes)
    reader.add(4)
    with pytest.raises(FrameRefused) as refused:
        reader.next_frame()
    assert refused.value.size_bytes == size_bytes


def test_a_frame_that_fits_is_not_begun_elsewhere() -> None:
    reader = head()
    size_bytes = CAPACITY_BYTES - 4
    reader.room()[:5] = struct.pack(">i", size_bytes) + b"x"
    reader.add(5)
    assert reader.next_frame() is None
    assert len(reader.room()) == CAPACITY_BYTES - 5
