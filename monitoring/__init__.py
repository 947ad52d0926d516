"""Lag, canary records, metrics, and the audit that proves two copies equal."""
