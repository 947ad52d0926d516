"""What the coordinators of groups and transactions stand on: their host, and the log that keeps their state."""
