"""Scripts that set up tools: run by the Makefile, never imported by the product."""
