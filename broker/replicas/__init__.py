"""The partitions that this broker has: made, led, followed and removed as the controller orders."""
