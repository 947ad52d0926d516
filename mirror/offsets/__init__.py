"""The exact offset map of a link: its intervals, its recovery, and the topic on the target that keeps it."""
