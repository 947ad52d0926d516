"""No client writes at the source while it is moved away from, and none afterwards."""
