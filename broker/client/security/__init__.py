"""Reaching clusters that are locked: TLS, and the mechanisms of SASL."""
