"""`python -m deploy.cli`: the `farshore` command where it is not installed."""

from deploy.cli.root import main

main()
