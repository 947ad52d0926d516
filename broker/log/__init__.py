"""The partition log: segments of record batches kept as they came, their indexes, and what is known about producers."""
