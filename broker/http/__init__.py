"""What farshore shows over HTTP, to whom: one page of metrics (face.py), behind TLS, a token or certificates."""
