"""What every part of farshore stands on: the error root, the clock, addresses, documents. Imports nothing of ours."""
