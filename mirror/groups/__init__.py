"""Consumer group offsets: what is decided for each, carrying them over, and saying what waits and why."""
