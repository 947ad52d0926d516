"""The source's ACLs at the target: what they come to there, and the passes that bring them."""
