"""One module per API key. Each registers its own key and versions (`HANDLER`); `registry` collects them."""
