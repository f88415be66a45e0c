"""`python -m flows` is `tunecost`."""

from flows.cli import app

app(prog_name="tunecost")
