"""What can go wrong on the warehouse's side; each message is one line that says what to do.

WarehouseError
├── DataFolderError     the data folder cannot be used (read-only, not a folder, disk full)
├── LedgerBusy          another tunecost is writing
├── Damaged             a database file cannot be read
├── NotPublished        there is no published file yet
├── CheckFailed         a check with severity `fail` found rows: nothing was published
└── SeedError           a seed file breaks its own rules
"""

from __future__ import annotations


class WarehouseError(Exception):
    """The warehouse cannot do what was asked."""


class DataFolderError(WarehouseError):
    """The data folder cannot be used."""


class LedgerBusy(WarehouseError):  # noqa: N818 - reads as the verdict it is
    """Another tunecost is writing."""


class Damaged(WarehouseError):  # noqa: N818
    """A database file cannot be read."""


class NotPublished(WarehouseError):  # noqa: N818
    """There is no published file yet."""


class CheckFailed(WarehouseError):  # noqa: N818
    """A check with severity `fail` found rows."""
