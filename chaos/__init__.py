"""Faults between sites while a checker proves what the mirror promised."""
