"""What sizing refuses, in one clear line.

SizingError(ValueError)     a model, a set-up or a pair of both that cannot be sized
├── UnknownModel            no architecture is known under that name (nearest names are given)
└── NotSupported            a method that the model cannot take, or a card that cannot run it
"""

from __future__ import annotations


class SizingError(ValueError):
    """A model, a set-up or a pair of both that cannot be sized."""


class UnknownModel(SizingError):  # noqa: N818 - reads as the verdict it is
    """No architecture is known under that name."""


class NotSupported(SizingError):  # noqa: N818
    """A method that the model cannot take, or a card that cannot run the precision."""
