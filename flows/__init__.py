"""Who calls whom, and when. The only room that sees both scrapers and warehouse."""
