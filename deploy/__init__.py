"""The composition root: command line, configuration file, demo."""
