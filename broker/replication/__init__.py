"""Copies of a partition on several brokers: what its leader knows of them, and how the others follow."""
