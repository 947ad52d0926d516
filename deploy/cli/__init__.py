"""The command line: `root.py` finds a noun's module when it is called; `terminal.py` has the manners of all of them."""
