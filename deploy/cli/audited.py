"""`--max-audit-age`: a move that is refused unless the copies were proved to be equal."""

from __future__ import annotations

from collections.abc import Iterable

from deploy.cli.terminal import AppContext, CommandRefused, ExitCode, audit_directory
from monitoring.audit.gate import why_not_enough
from monitoring.audit.store import read_summaries
from monitoring.errors import AuditResultDamaged


def require_audited(context: AppContext, links: Iterable[str], age_max_ms: int, now_ms: int) -> None:
    """Raise CommandRefused (exit code 3) for the first link whose last audit is not enough, or cannot be read."""
    try:
        summaries = {summary.link: summary for summary in read_summaries(audit_directory(context))}
    except AuditResultDamaged as error:
        raise CommandRefused(f"nothing was changed: {error}", error.hint, ExitCode.REFUSED) from error
    for link in links:
        if (why := why_not_enough(summaries.get(link), age_max_ms, now_ms)) is not None:
            raise CommandRefused(
                f"nothing was changed: link {link} is not proved to be equal: {why}",
                f"farshore audit run --link {link}",
                ExitCode.REFUSED,
            )
