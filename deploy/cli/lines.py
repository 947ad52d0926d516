"""Sentences in lines that fit a terminal, with the commands in them whole: they are there to be copied."""

from __future__ import annotations

import re
import sys
import textwrap
from typing import Final

WIDTH: Final = 80
_COMMAND: Final = re.compile(r"`[^`]+`|\bfarshore(?: [a-z][a-z-]*){1,2}(?: --[a-z][a-z-]*(?: [^\s;,`-][^\s;,`]*)?)*")
_GLUE: Final = "\0"


def filled(line: str, indent: str = "  ") -> str:
    """Ids and commands stay whole, also where one is wider than a line."""
    glued = _COMMAND.sub(lambda command: command[0].replace(" ", _GLUE), line)
    lines = textwrap.fill(glued, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace(_GLUE, " ")


def with_command(text: str, command: str) -> str:
    """The command, if there is one, on a line of its own."""
    return f"{filled(f'{text}:')}\n  {command}" if command else filled(text)


def next_line(step: str) -> str:
    """A sentence fits; what is only a command is copied whole."""
    return f"next: {step}" if step.startswith("farshore ") and ";" not in step else filled(f"next: {step}")


def filled_for_people(text: str) -> str:
    """For stderr: a log, or another program, gets it as one line. What follows in lines of its own stays as it is,
    unless that is one more error.
    """
    if not sys.stderr.isatty():
        return text
    first, *rest = text.split("\n")
    return "\n".join([filled(first), *(filled(line) if line.startswith("error: ") else line for line in rest)])
