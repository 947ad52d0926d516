"""The mirror's commands, by noun. Nothing but click and the terminal's manners is imported before a command runs."""

from mirror.commands.group import group_group
from mirror.commands.link import link_group
from mirror.commands.mirror import mirror_group
from mirror.commands.offsets import offsets_group
from mirror.commands.status import status
from mirror.commands.topic import topic_group

__all__ = ["group_group", "link_group", "mirror_group", "offsets_group", "status", "topic_group"]
