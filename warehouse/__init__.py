"""From offers to answers: ledger, checks, published file, sizing. No network."""
