"""Measurements that anyone can run: `python -m benchmarks.<name>`; each names its baseline."""
