"""Everything that can go wrong between a provider and its rows.

    SourceError                 a scope could not be read; its last good rows stay
    ├── FetchError              no usable answer came back
    │   ├── Unreachable         DNS, connect, TLS or a broken transfer
    │   ├── TimedOut            no complete answer within the time cap
    │   ├── BadStatus           an HTTP status that is not a success (`status`)
    │   ├── TooLarge            more bytes than the size cap
    │   └── Refused             a redirect or address that policy forbids
    ├── PageError               an answer came back, but it is not what the source documents
    │   ├── NotTheFormat        wrong content type, cut-off JSON, an HTML error page with status 200
    │   └── UnknownShape        a key, column or table of the known form is missing
    ├── EmptyReply              a well-formed answer without rows, where rows were before
    ├── Incomplete              paging ended early: a page cap, a loop, a total that does not match
    └── TooManyRejects          the contract refused more rows than a healthy source has
    MissingKey                  the provider needs a key that is not set: skipped, not failed

Each message is one line that says what is wrong and, where a person can act, what to do.
"""

from __future__ import annotations


class SourceError(Exception):
    """A scope could not be read."""


class FetchError(SourceError):
    """No usable answer came back."""


class Unreachable(FetchError):  # noqa: N818 - reads as the verdict it is
    """DNS, connect, TLS or a broken transfer."""


class TimedOut(FetchError):  # noqa: N818
    """No complete answer within the time cap."""


class BadStatus(FetchError):  # noqa: N818
    """An HTTP status that is not a success."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class TooLarge(FetchError):  # noqa: N818
    """More bytes than the size cap."""


class Refused(FetchError):  # noqa: N818
    """A redirect or address that policy forbids."""


class PageError(SourceError):
    """An answer came back, but it is not what the source documents."""


class NotTheFormat(PageError):  # noqa: N818
    """Wrong content type, truncated JSON, an HTML error page with status 200."""


class UnknownShape(PageError):  # noqa: N818
    """A key, column or table of the known form is missing."""


class EmptyReply(SourceError):  # noqa: N818
    """A well-formed answer without rows, where rows were before."""


class Incomplete(SourceError):  # noqa: N818
    """Paging ended early: a page cap, a loop, a total that does not match."""


class TooManyRejects(SourceError):  # noqa: N818
    """The contract refused more rows than a healthy source has."""


class MissingKey(Exception):  # noqa: N818 - not a SourceError: skipped, not failed
    """The provider needs a key that is not set."""
