"""`farshore demo`: two sites, real flights, a switchover, a lost site, an audit, one report."""
