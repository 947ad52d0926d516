"""The operations journal: its values, its topic at the target, and how an operation stands by it."""
