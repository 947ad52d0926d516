"""ToolsError: a tool that the tests or the demo need cannot be set up."""

from __future__ import annotations

from deploy.errors import DeployError


class ToolsError(DeployError):
    """What is missing, and in `hint` the command that installs it."""

    retriable = True
