"""Small files that others read while they are written."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str) -> Path:
    """Write a file so that a reader sees the old or the new one, never a half. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
    return path
