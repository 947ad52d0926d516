"""Long seeded runs against real clusters: `python -m tests.chaos_runs content|circles|hands --help`."""
