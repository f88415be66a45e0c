"""Size many jobs: rows in, the same rows with a prediction out, one bad row stopping nothing.

The words of a row are read by `rows.py`; its model is found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from warehouse.sizing.errors import SizingError, UnknownModel
from warehouse.sizing.memory import TERMS, Estimate, estimate
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.rows import metric_from_row, number, setup_from_row
from warehouse.sizing.vision import encoder_from_name

STRETCH: Final = 8.0
"""How far a row may go beyond a rotary model's positions: the run that it describes took place."""
KIN_RATIO: Final = 2.0
"""How far in size a model of the same family may stand in for an unknown one: it shares the
vocabulary and the proportions."""
OUTPUT: Final = (
    "predicted_gib", "predicted_low_gib", "predicted_high_gib", "metric",
    *(f"predicted_{term}_gib" for term in (*TERMS, "overhead")), "peak_phase", "error",
)  # fmt: skip


def size_rows(
    rows: Iterable[Mapping[str, str]], models: Mapping[str, ModelSpec]
) -> Iterator[dict[str, Any]]:
    """Size every row; one that cannot be sized says why in `error`.

    Args:
        rows: with the columns of a trace or of measured runs, all values text.
        models: architectures by hub name.

    Yields:
        The row's own columns and those of `OUTPUT`.
    """
    known = {name.lower(): spec for name, spec in models.items()}
    for row in rows:
        made: dict[str, Any] = dict(row)
        made.update(dict.fromkeys(OUTPUT, ""))
        try:
            spec = find_model(row, known)
            setup = setup_from_row(row)
            metric = metric_from_row(row)
            found = estimate(spec, setup, row.get("gpu_model") or None, STRETCH)
            made.update(_columns(found, metric))
        except SizingError as error:
            made["error"] = str(error)
        yield made


def _columns(found: Estimate, metric: str) -> dict[str, Any]:
    low, likely, high = found.range_gib(metric)
    columns: dict[str, Any] = {
        "predicted_gib": round(likely, 4),
        "predicted_low_gib": round(low, 4),
        "predicted_high_gib": round(high, 4),
        "metric": metric,
        "peak_phase": found.peak_phase,
        "error": "",
    }
    peak = found.peak
    for term, value in zip(TERMS, peak, strict=True):
        columns[f"predicted_{term}_gib"] = round(value / 2**30, 4)
    columns["predicted_overhead_gib"] = round(max(0.0, likely - peak.total / 2**30), 4)
    return columns


def find_model(row: Mapping[str, str], known: Mapping[str, ModelSpec]) -> ModelSpec:
    """The architecture of a row: by `model`, by `model_base`, or near in size by `params_b`.

    Args:
        row: the row.
        known: architectures by lower-case hub name.

    Raises:
        UnknownModel: none of the three leads to an architecture; the nearest names are given.
    """
    name = (row.get("model") or "").strip()
    for text in (name, (row.get("model_base") or "").strip()):
        spec = known.get(text.lower())
        if spec is not None:
            return spec
    encoder = encoder_from_name(name)
    if encoder is not None:
        return encoder
    size = number(row, "params_b") or _size_in_name(name)
    if size and size > 0:
        return approximate(name, size, tuple(known.values()))
    if not name:
        raise UnknownModel("the row names no model")
    near = get_close_matches(name.lower(), list(known), 3, 0.4)
    hint = f"; nearest: {', '.join(known[n].hf_id for n in near)}" if near else ""
    raise UnknownModel(f"model {name!r} is not known{hint}")


@lru_cache(maxsize=1024)
def approximate(name: str, params_b: float, known: tuple[ModelSpec, ...]) -> ModelSpec:
    """A stand-in for an unknown model: the dense decoder nearest in size, its depth scaled.

    Raises:
        UnknownModel: no known model is within a factor of four in size.
    """
    wanted = params_b * 1e9
    if _IMAGE_NAME.search(name):
        dense = [m for m in known if m.is_diffusion]
    else:
        dense = [m for m in known if m.is_text and not m.is_moe and not m.decoder_layers]
    family = _family(name)
    kin = [m for m in dense if family and _family(m.hf_id) == family]
    kin = [m for m in kin if _ratio(m.params_total, wanted) < KIN_RATIO]
    best = min(
        kin or dense,
        key=lambda m: (_ratio(m.params_total, wanted), m.hf_id),
        default=None,
    )
    if best is None or not 0.25 < best.params_total / wanted < 4:
        raise UnknownModel(f"model {name!r} is not known and none of {params_b} B parameters is")
    if best.is_diffusion:
        layers = max(3, round(best.num_layers * wanted / best.params_total))
        return replace(best, hf_id=name, num_layers=layers, params_stated=int(wanted))
    inside = sum(b.params * n for b, n in best.blocks)
    outside = best.params_total - inside
    layers = max(1, round((wanted - outside) / inside * best.num_layers))
    return replace(best, hf_id=name or best.hf_id, num_layers=layers, max_position=None)


_IMAGE_NAME: Final = re.compile(r"flux|diffusion|sdxl|dreambooth", re.IGNORECASE)
_SIZE: Final = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)B(?![A-Za-z0-9])", re.IGNORECASE)  # "-4B"


def _size_in_name(name: str) -> float | None:
    """Billions of parameters that a name states ("FLUX.2-klein-base-4B" gives 4)."""
    found = _SIZE.search(name)
    return float(found.group(1)) if found else None


def _family(name: str) -> str:
    """The letters that a model's name begins with ("Qwen/Qwen3.5-9B" gives "qwen")."""
    found = re.match(r"[a-z]+", name.rpartition("/")[2].lower())
    return found.group() if found else ""


def _ratio(a: float, b: float) -> float:
    return max(a, b) / min(a, b)
