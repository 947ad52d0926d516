"""Side-by-side measurements; `make bench` prints them. Nothing here is a test: speed is never asserted."""
