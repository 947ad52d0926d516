"""Which worker of a fleet runs which links."""
