"""kafka-python reads its tables with a function that the standard library has deprecated; here warnings are errors."""

from __future__ import annotations

import warnings
from importlib import import_module

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    for _module in ("", ".protocol.admin", ".protocol.consumer.metadata", ".protocol.metadata", ".protocol.producer"):
        import_module(f"kafka{_module}")
