"""One module per API key, with its key and versions (`HANDLER`); `table` lists them all."""
