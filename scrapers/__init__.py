"""From a provider's bytes to offers. No database, no schedule, no clock inside a parser."""
