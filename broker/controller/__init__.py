"""What one broker of a cluster decides for all of them: who has which partition, and who leads it."""
