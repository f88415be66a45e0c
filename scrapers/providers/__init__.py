"""One module per provider; `scrapers.collect.discover` finds them, nothing registers them."""
