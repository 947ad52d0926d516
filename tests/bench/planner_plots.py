"""`python -m tests.bench.planner_plots`: draws docs/planner-*.svg from simulated fleets, the same bytes each time.

The files say their colours themselves, for light and for dark pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from broker.base.percentile import percentile
from tests.mirror.fleet.planner_world import EVENTS, LENGTH_S, UNITS, WORKERS, Run, run_all

DOCS: Final = Path(__file__).parents[2] / "docs"
SEEDS: Final = range(24)
EVERY_S: Final = 5
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 56, 34, 40, 34
STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#1c2b36}.t{font-weight:600}.a{stroke:#8a979f;fill:none}"
    ".g{stroke:#8a979f;stroke-dasharray:2 4}.l{stroke:#1f6f8b;stroke-width:1.8;fill:none}.b{fill:#1f6f8b;opacity:.22}"
    ".d{fill:#b3392f;opacity:.55}.e{stroke:#d9a441;stroke-dasharray:4 3}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e9ec}.l{stroke:#63b8d4}.b{fill:#63b8d4}.d{fill:#ee8277}}"
)


def draw() -> dict[str, str]:
    """File name -> its text."""
    runs = run_all(SEEDS)
    about = f"{WORKERS} workers, {UNITS} units, {len(SEEDS)} seeds"
    middle = "median, 10 to 90 %"
    return {
        "planner-balance.svg": _over_time(
            f"Busiest and idlest worker apart, in parts of the mean ({middle}; {about})",
            [[run.apart[at] for run in runs] for at in range(0, LENGTH_S, EVERY_S)],
            2.4,
            lambda value: f"{value:.1f}",
            [0.2, 0.5],
        ),
        "planner-moves.svg": _over_time(
            f"Units moved that could have stayed, so far ({middle}; {about})",
            [[float(run.moves[at]) for run in runs] for at in range(0, LENGTH_S, EVERY_S)],
            20.0 * (max(run.moves[-1] for run in runs) // 20 + 1),
            lambda value: f"{value:.0f}",
            [],
        ),
        "planner-steady.svg": _steady(f"Seconds from each event to the last move that it led to ({about})", runs),
    }


def _over_time(
    title: str, columns: Sequence[Sequence[float]], most: float, label: Callable[[float], str], goals: Sequence[float]
) -> str:
    height = 260

    def x(second: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * second / LENGTH_S

    def y(value: float) -> float:
        return height - BOTTOM - (height - TOP - BOTTOM) * min(value, most) / most

    def line(share: float) -> list[str]:
        return [f"{x(n * EVERY_S):.1f},{y(percentile(each, share) or 0.0):.1f}" for n, each in enumerate(columns)]

    parts = [f'<polygon class="b" points="{" ".join(line(0.9) + line(0.1)[::-1])}"/>']
    parts += [f'<polyline class="l" points="{" ".join(line(0.5))}"/>']
    for value in (0.0, most / 4, most / 2, most * 3 / 4, most):
        parts += [f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{label(value)}</text>']
    for value in goals:
        parts += [f'<path class="g" d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}"/>']
    for event in EVENTS:
        parts += [f'<path class="e" d="M{x(event.at_s):.1f} {TOP}V{height - BOTTOM}"/>']
        parts += [f'<text x="{x(event.at_s) + 4:.1f}" y="{TOP + 10}">{event.name}</text>']
    for second in range(0, LENGTH_S + 1, 300):
        parts += [f'<text x="{x(second):.1f}" y="{height - 14}" text-anchor="middle">{second} s</text>']
    return _file(title, height, parts, LEFT)


def _steady(title: str, runs: Sequence[Run]) -> str:
    row, most = 30, 60.0 * (max(max(run.steady_s.values()) for run in runs) // 60 + 1)
    height = TOP + row * len(EVENTS) + BOTTOM
    left = 120

    def x(seconds: float) -> float:
        return left + (WIDTH - left - RIGHT) * min(seconds, most) / most

    parts = []
    for number, event in enumerate(EVENTS):
        y = TOP + row * number + row / 2
        parts += [f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{event.name}</text>']
        waits = [float(run.steady_s[event.name]) for run in runs]
        parts += [f'<circle class="d" cx="{x(wait):.1f}" cy="{y:.1f}" r="4"/>' for wait in waits]
        middle = percentile(waits, 0.5) or 0.0
        parts += [f'<path class="l" d="M{x(middle):.1f} {y - 10:.1f}v20"/>']
    for second in range(0, int(most) + 1, 60):
        parts += [f'<text x="{x(second):.1f}" y="{height - 14}" text-anchor="middle">{second} s</text>']
    return _file(title, height, parts, left)


def _file(title: str, height: int, parts: Sequence[str], left: int) -> str:
    frame = f'<path class="a" d="M{left} {TOP}V{height - BOTTOM}H{WIDTH - RIGHT}"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"><title>{title}</title>'
    return "\n".join(
        [head, f"<style>{STYLE}</style>", f'<text class="t" x="8" y="20">{title}</text>', *parts, frame, "</svg>", ""]
    )


if __name__ == "__main__":
    for name, text in draw().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"{DOCS / name}: {len(text):,} bytes")
