"""Planting small bugs, one at a time, to see whether the tests beside the code find them: `make mutants`."""
