"""Judging what clients of one cluster saw while it was under faults."""
