"""Size many jobs: rows in, the same rows with a prediction out, one bad row stopping nothing.

A row may have the columns of a trace (exact live bytes of transformers + peft) or of a measured
run (with `framework`, `kind`, `sharding` ...). A missing or empty column takes the default of the
row's framework.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from warehouse.sizing.errors import SizingError, UnknownModel
from warehouse.sizing.memory import PHASES, TERMS, Estimate, estimate
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.presets import find_preset, preset_fields
from warehouse.sizing.setup import METHODS, Setup

STRETCH: Final = 8.0
"""How far a row may go beyond a rotary model's positions: the run that it describes took place."""
METRIC: Final = {
    "live": "live", "allocated": "allocated", "reserved": "reserved", "nvidia-smi": "device",
    "device": "device", "nvml": "device", "unknown": "reserved", "estimate": "device",
    "": "device",
}  # fmt: skip
EMPTY: Final = frozenset({"", "unknown", "not stated", "n/a", "none stated"})
OUTPUT: Final = (
    "predicted_gib", "predicted_low_gib", "predicted_high_gib", "metric",
    *(f"{term}_gib" for term in (*TERMS, "overhead")), "peak_phase", "error",
)  # fmt: skip
# methods of one kind: the same modules train, with other numbers in them
METHOD_KIND: Final = {
    "adalora": "lora", "loha": "lora", "lokr": "lora", "vera": "lora", "pvera": "lora",
    "fourierft": "lora", "randlora": "lora", "bone": "lora", "miss": "lora", "delora": "lora",
    "llamapro": "freeze", "lisa": "freeze", "badam": "freeze", "adaption_prompt": "adapter",
}  # fmt: skip


ADAPTER_TRAITS: Final[dict[str, dict[str, Any]]] = {
    # kept fp32 matrices of the target's size
    "loha": {"delta_copies": 1.0}, "lokr": {"delta_copies": 1.0}, "dora": {"delta_copies": 1.0},
    "oft": {"delta_copies": 1.0}, "boft": {"delta_copies": 1.0}, "hra": {"delta_copies": 1.0},
    "frod": {"delta_copies": 1.0}, "peanut": {"delta_copies": 2.0},
    # a "rank" that counts coefficients, not rows
    "fourierft": {"delta_copies": 1.0, "lora_rank": 1},
    "waveft": {"delta_copies": 2.0, "lora_rank": 1},
    "vera": {"lora_rank": 1, "adapter_inputs": False},
    "pvera": {"lora_rank": 1}, "psoft": {"lora_rank": 8}, "vblora": {"lora_rank": 4},
    # nothing kept of the input
    "tinylora": {"adapter_inputs": False}, "adamss": {"adapter_inputs": False, "lora_rank": 1},
    "beft": {"adapter_inputs": False, "lora_rank": 1}, "shira": {"adapter_inputs": False},
    "glora": {"adapter_inputs": False}, "miss": {"adapter_inputs": False},
}  # fmt: skip
"""How other peft adapters differ in memory from a LoRA pair on the same targets."""


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
        columns[f"{term}_gib"] = round(value / 2**30, 4)
    columns["overhead_gib"] = round(max(0.0, likely - peak.total / 2**30), 4)
    return columns


def is_trace(row: Mapping[str, str]) -> bool:
    """Whether a row has the columns of a trace, whose peaks are live tensor bytes."""
    return "kind" not in row and ("peak_gib" in row or "adapter_dtype" in row)


def metric_from_row(row: Mapping[str, str]) -> str:
    """Which figure a row asks for.

    Raises:
        SizingError: its `kind` is none that is known.
    """
    if is_trace(row):
        return "live"
    kind = (row.get("kind") or "").strip().lower()
    if kind not in METRIC:
        raise SizingError(
            f"kind {kind!r} is not one of {', '.join(sorted(k for k in METRIC if k))}"
        )
    return METRIC[kind]


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
    size = _float(row, "params_b") or _size_in_name(name)
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
    best = min(
        dense,
        key=lambda m: (abs(_ratio(m.params_total, wanted) - 1), m.hf_id),
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


def _ratio(a: float, b: float) -> float:
    return max(a, b) / min(a, b)


# --- reading a row ----------------------------------------------------------------------------


def _text(row: Mapping[str, str], column: str) -> str:
    value = (row.get(column) or "").strip()
    return "" if value.lower() in EMPTY else value


def _float(row: Mapping[str, str], column: str) -> float | None:
    text = _text(row, column)
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise SizingError(f"{column} is {text!r}, not a number") from None


def _whole(row: Mapping[str, str], column: str) -> int | None:
    value = _float(row, column)
    if value is None:
        return None
    if value != int(value):
        raise SizingError(f"{column} is {value}, not a whole number")
    return int(value)


def _flag(row: Mapping[str, str], column: str) -> bool | None:
    text = _text(row, column).lower()
    if not text:
        return None
    if text in {"true", "yes", "1"}:
        return True
    if text in {"false", "no", "0"}:
        return False
    return None


_DTYPES: Final = {
    "bf16": "bf16", "bfloat16": "bf16", "pure_bf16": "bf16", "fp16": "fp16", "float16": "fp16",
    "fp32": "fp32", "float32": "fp32", "fp8": "fp8",
}  # fmt: skip
_ATTENTION: Final = {
    "flash": "flash", "flash_attention_2": "flash", "fa2": "flash", "sdpa": "sdpa",
    "sdpa(mem-efficient)": "mem_efficient", "eager": "eager", "xformers": "xformers",
    "flex": "flex", "mem_efficient": "mem_efficient",
}  # fmt: skip
_LOSS: Final = {"fused_linear": "fused_linear_ce", "liger": "fused_linear_ce"}


def setup_from_row(row: Mapping[str, str]) -> Setup:
    """The set-up that a row describes.

    Raises:
        SizingError: a value is none that is known.
    """
    trace = is_trace(row)
    method = _text(row, "method").lower() or "lora"
    kind = METHOD_KIND.get(method, method)
    if kind not in METHODS:
        kind = "lora" if _text(row, "lora_rank") or _text(row, "lora_targets") else kind
    preset = find_preset(_text(row, "framework") or "transformers")
    made = preset_fields(preset, kind)
    weights = _text(row, "weight_dtype").lower()
    quant = _text(row, "quant").lower()
    if trace:
        # The tracer's model is bf16 under flash attention, quantised without k-bit preparation,
        # its optimiser goes tensor by tensor. On the meta device peft never casts an adapter to
        # the base model's precision, so adapters are fp32 whatever the column asks for.
        made.update(attention="flash", foreach=False, kbit_fp32=False, adapter_dtype="fp32",
                    grad_checkpointing="none", outputs_kept=False, autocast=False)  # fmt: skip
        if weights == "nf4":
            weights, quant = "bf16", "nf4-dq"
    if weights.startswith("fp32 ("):
        made.update(weight_dtype="fp32", autocast=True)
    elif weights in {"nf4", "nf4-dq", "int8", "gptq-int4", "gptq-int8", "int4"} and not quant:
        quant = weights
    elif weights and weights != "int8":
        dtype = _DTYPES.get(weights.split("/")[0])
        if dtype is None:
            raise SizingError(f"weight_dtype {weights!r} is not known")
        made["weight_dtype"] = dtype
        if dtype == "fp16":
            made.setdefault("compute_dtype", None)
    if quant and quant != "none":
        made["quant"] = quant
        if kind == "lora":
            made["method"] = "qlora"
    if kind in {"galore", "qgalore"} and not _text(row, "lora_rank"):
        made["lora_rank"] = 128
    if quant == "none" and kind == "qlora" and weights in {"int8"}:
        made["quant"] = "int8"
    rank = _whole(row, "lora_rank")
    if rank is not None:
        made["lora_rank"] = rank
    made.update(ADAPTER_TRAITS.get(method, {}))
    targets = _text(row, "lora_targets")
    if targets:
        if "fully trained" in targets:
            made["modules_to_save"] = True
            targets = targets.split(";")[0]
        if targets.startswith("attn"):
            targets = "attn"
        if targets.startswith("c_attn("):
            targets = "attn"
        made["lora_targets"] = targets
    adapter = _text(row, "adapter_dtype").lower()
    if adapter and not trace:
        made["adapter_dtype"] = _DTYPES.get(adapter, adapter)
    optimizer = _text(row, "optimizer").lower()
    if optimizer:
        made["optimizer_in_backward"] = "per_layer" in optimizer
        made["optimizer"] = "adamw8bit" if optimizer.startswith("galore") else optimizer
        if optimizer.startswith("adam on"):
            made["optimizer"] = "adamw"
    checkpointing = _text(row, "grad_checkpointing").lower()
    if checkpointing:
        names = {"true": "full", "false": "none", "selective": "selective"}
        made["grad_checkpointing"] = names.get(checkpointing, checkpointing)
    attention = _text(row, "attention").lower()
    if attention:
        made["attention"] = _ATTENTION.get(attention, attention)
    loss = _text(row, "loss_impl").lower()
    if loss:
        made["loss_impl"] = _LOSS.get(loss, loss)
    for column, name in (
        ("seq_len", "seq_len"), ("micro_batch", "micro_batch"), ("grad_accum", "grad_accum"),
        ("gpus", "gpus"),
    ):  # fmt: skip
        value = _whole(row, column)
        if value is not None:
            made[name] = value
    if _text(row, "seq_len_kind").startswith("image") and "seq_len" in made:
        made["image_px"] = made["seq_len"]
    sharding = _text(row, "sharding").lower()
    if sharding:
        base, _, tensor = sharding.partition("+tp")
        made["sharding"] = base
        if tensor.isdigit():
            made["tensor_parallel"] = int(tensor)
    offload = _text(row, "offload").lower()
    if offload:
        made["offload"] = "params+optimizer" if offload.startswith("cpu") else offload
    if _flag(row, "compile"):
        made["compile"] = True
    made.update(_noted(row))
    return Setup(**made)


def _noted(row: Mapping[str, str]) -> dict[str, Any]:
    """Settings that a measured row states in words, in its note."""
    note = (row.get("note") or "").lower()
    made: dict[str, Any] = {}
    if "no autocast" in note:
        made["autocast"] = False
    elif "autocast" in note:
        made["autocast"] = True
    if "accelerated-peft" in note:
        made["kbit_fp32"] = False
    if "foak" in note or "liger" in note:
        made["fast_kernels"] = True
    if "optimizer_in_bwd" in note and "no optimizer_in_bwd" not in note:
        made["optimizer_in_backward"] = True
    return made


__all__ = ["OUTPUT", "PHASES", "approximate", "find_model", "setup_from_row", "size_rows"]
