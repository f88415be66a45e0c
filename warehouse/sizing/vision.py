"""Memory of vision and diffusion models."""

from __future__ import annotations

from warehouse.sizing.errors import NotSupported
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.setup import Setup


def phases(model: ModelSpec, setup: Setup) -> tuple[dict[str, tuple[float, ...]], int]:
    """Bytes by term for each moment of a step, and the trainable parameters.

    Raises:
        NotSupported: no rule for this architecture is known.
    """
    raise NotSupported(f"{model.hf_id}: {model.model_type} with {setup.method} is not known")
