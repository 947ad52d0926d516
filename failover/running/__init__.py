"""The steps of a switchover or failover, each announced, checked, and taken up elsewhere if need be."""
