"""Physics: how much memory a fine-tuning job needs and how long it runs. No price, no I/O."""
