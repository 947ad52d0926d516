from __future__ import annotations

import subprocess
import sys

import pytest

from broker.wire.buffers import grow_buffer, receive_buffer


@pytest.mark.parametrize("size_bytes", [0, 1, 4096, 1_000_000])
def test_receive_buffer_is_a_writable_bytearray_of_the_size(size_bytes: int) -> None:
    buffer = receive_buffer(size_bytes)
    assert type(buffer) is bytearray
    assert len(buffer) == size_bytes
    memoryview(buffer)[:] = b"x" * size_bytes
    assert buffer == b"x" * size_bytes


def test_grown_buffer_keeps_what_it_had() -> None:
    buffer = receive_buffer(100)
    buffer[:] = bytes(range(100))
    for _ in range(15):
        grow_buffer(buffer, len(buffer))
    assert len(buffer) == 100 << 15
    assert buffer[:100] == bytes(range(100))
    buffer[-1:] = b"end"
    assert buffer.endswith(b"end")


def test_buffer_with_a_view_does_not_move() -> None:
    buffer = bytearray(b"kept")
    view = memoryview(buffer)
    with pytest.raises(BufferError):
        grow_buffer(buffer, 1_000_000)
    assert bytes(view) == b"kept"


FAULTS_OF_A_FREED_BUFFER = """
import platform, resource
from broker.wire.buffers import keep_freed_memory, receive_buffer

def use() -> int:
    buffers = [receive_buffer(8_000_000) for _ in range(3)]
    for buffer in buffers:
        buffer[:] = b"x" * len(buffer)
    del buffer, buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_freed_memory(64_000_000)
use()
first = use()
print(use() - first if platform.libc_ver()[0] == "glibc" else 0)
"""


def test_freed_memory_is_kept() -> None:
    """Without it, each use costs thousands of page faults."""
    done = subprocess.run([sys.executable, "-c", FAULTS_OF_A_FREED_BUFFER], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500
