"""Defaults of command-line options that the file may give, too. Light: the options are made at every start."""

from __future__ import annotations

from typing import Final

MONITOR_LISTEN: Final = "127.0.0.1:9600"
SPARK_MASTER: Final = "local[*]"
