"""Consumer groups: the classic group protocol and committed offsets."""
