"""Topics: their names, their configs, their partitions on this broker."""
