"""The way back: what the old source has that nobody else has, saved and replayed, and the roles as they were."""
