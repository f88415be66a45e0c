"""Read a row of a jobs table: whose set-up it is, in the words that people use for it.

A row may have the columns of a trace (exact live bytes of transformers + peft) or of a measured
run (with `framework`, `kind`, `sharding` ...). A missing or empty column takes the default of the
row's framework.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from warehouse.sizing.errors import SizingError
from warehouse.sizing.presets import find_preset, fsdp_fields, preset_fields
from warehouse.sizing.setup import METHODS, QUANT_BITS, Setup

METRIC: Final = {
    "live": "live", "allocated": "allocated", "active": "allocated", "reserved": "reserved",
    "nvidia-smi": "device", "device": "device", "nvml": "device", "unknown": "reserved",
    "estimate": "device", "": "device",
}  # fmt: skip
"""The figure that a `kind` asks for. Logs that name none mostly print reserved memory."""
LARGEST: Final = 1e9
"""No count of a job is larger."""
EMPTY: Final = frozenset({"", "unknown", "not stated", "n/a", "none stated"})

METHOD_KIND: Final = {
    # the same modules train, with other numbers in them
    **dict.fromkeys((
        "adalora", "loha", "lokr", "vera", "pvera", "fourierft", "waveft", "randlora", "bone",
        "miss", "delora", "oft", "boft", "hra", "lora-fa", "lorafa", "gralora", "pissa", "olora",
        "loftq", "eva", "corda", "rslora", "xlora", "frod", "peanut", "psoft", "vblora", "shira",
        "glora", "lily", "deft", "beft", "adamss", "tinylora", "road", "poly",
    ), "lora"),
    **dict.fromkeys(("trainable_tokens", "bitfit", "layernorm", "c3a"), "ln_tuning"),
    **dict.fromkeys(("cpt", "multitask_prompt"), "prompt"),
    **dict.fromkeys(("p_tuning", "p-tuning", "ptuning_v2"), "ptuning"),
    "llamapro": "freeze", "lisa": "freeze", "badam": "freeze", "adaption_prompt": "adapter",
    "prefix_tuning": "prefix", "prompt_tuning": "prompt", "full_finetune": "full", "fft": "full",
}  # fmt: skip
"""Methods of one kind, as far as memory goes."""

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


def is_trace(row: Mapping[str, str]) -> bool:
    """Whether a row has the columns of a trace, whose peaks are live tensor bytes."""
    if "kind" in row or "framework" in row:
        return False
    return "peak_gib" in row or "adapter_dtype" in row


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


# --- reading a row ----------------------------------------------------------------------------


def _text(row: Mapping[str, str], column: str) -> str:
    value = (row.get(column) or "").strip()
    return "" if value.lower() in EMPTY else value


def number(row: Mapping[str, str], column: str) -> float | None:
    """A column as a number; None where it is empty.

    Raises:
        SizingError: it is no number.
    """
    text = _text(row, column)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise SizingError(f"{column} is {text!r}, not a number") from None
    if not -LARGEST <= value <= LARGEST:  # NaN and infinity too
        raise SizingError(f"{column} is {text}, beyond any job")
    return value


def _whole(row: Mapping[str, str], column: str) -> int | None:
    value = number(row, column)
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
    "half": "fp16", "fp32": "fp32", "float32": "fp32", "fp8": "fp8", "float8": "fp8",
}  # fmt: skip
_QUANT: Final = {
    "4bit": "nf4", "fp4": "nf4", "bnb-nf4": "nf4", "bnb-4bit": "nf4", "8bit": "int8",
    "llm.int8": "int8", "bnb-int8": "int8", "awq": "gptq-int4", "awq-int4": "gptq-int4",
    "gptq": "gptq-int4", "hqq": "int4", "hqq-int4": "int4", "eetq": "int8", "false": "none",
}  # fmt: skip
_OPTIMIZER: Final = {
    "adamw_torch": "adamw", "adam": "adamw", "adamw_hf": "adamw", "adamw_torch_fused":
    "adamw_fused", "adamw_8bit": "adamw8bit", "adamw_bnb_8bit": "adamw8bit", "8bit_adam":
    "adamw8bit", "paged_adamw_8bit": "paged_adamw8bit", "paged_adamw_32bit": "paged_adamw",
    "adamw_4bit": "adamw4bit", "sgd_with_momentum": "sgd_momentum", "lomo": "sgd",
}  # fmt: skip
_CHECKPOINTING: Final = {
    "true": "full", "yes": "full", "1": "full", "unsloth": "full", "false": "none", "no": "none",
    "0": "none",
}  # fmt: skip
_LOSS: Final = {
    "fused_linear": "fused_linear_ce", "liger": "fused_linear_ce", "cut_cross_entropy": "cut_ce",
    "chunked_ce": "chunked", "unsloth": "fused_linear_ce", "cross_entropy": "standard",
}  # fmt: skip
_SHARDING: Final = {
    "fsdp1": "fsdp", "fsdp2": "fsdp", "full_shard": "fsdp", "deepspeed-zero1": "zero1",
    "deepspeed-zero2": "zero2", "deepspeed-zero3": "zero3", "dp": "ddp", "naive-pp": "device_map",
}  # fmt: skip
_TENSOR: Final = re.compile(r"tp(\d+)")  # "fsdp+tp8"
_SAVED_WHOLE: Final = re.compile(
    r";.*(?:fully )?trained"
)  # "all-linear; wte+lm_head fully trained"


def setup_from_row(row: Mapping[str, str]) -> Setup:
    """The set-up that a row describes.

    Raises:
        SizingError: a value is none that is known.
    """
    trace = is_trace(row)
    method = _text(row, "method").lower() or "lora"
    kind = METHOD_KIND.get(method, method)
    if kind not in METHODS and (_text(row, "lora_rank") or _text(row, "lora_targets")):
        kind = "lora"
    preset = find_preset(_text(row, "framework") or "transformers")
    made = preset_fields(preset, kind) | fsdp_fields(preset, kind, _text(row, "sharding").lower())
    if trace:
        # The tracer's model is bf16 under flash attention, quantised without k-bit preparation,
        # its optimiser goes tensor by tensor. On the meta device peft never casts an adapter to
        # the base model's precision, so adapters are fp32 whatever the column asks for.
        made.update(attention="flash", foreach=False, kbit_fp32=False, adapter_dtype="fp32",
                    grad_checkpointing="none", outputs_kept=False, autocast=False)  # fmt: skip
    _read_precision(row, kind, trace, made)
    _read_adapter(row, method, trace, made)
    _read_training(row, made)
    _read_machines(row, made)
    made.update(_noted(row))
    return Setup(**made)


def _read_precision(row: Mapping[str, str], kind: str, trace: bool, made: dict[str, Any]) -> None:
    """Weights and their packing."""
    weights = _text(row, "weight_dtype").lower()
    quant = _text(row, "quant").lower()
    quant = _QUANT.get(quant, quant)
    if not quant and (_QUANT.get(weights, weights) in QUANT_BITS):
        quant = _QUANT.get(weights, weights)
        weights = ""
        if trace and quant == "nf4":
            quant = "nf4-dq"  # traces quantise doubly
    if weights.startswith("fp32 "):  # "fp32 (fp16 autocast)"
        made.update(weight_dtype="fp32", autocast=True)
    elif weights and weights not in QUANT_BITS:
        dtype = _DTYPES.get(re.split(r"[/ +]", weights)[0])
        if dtype is None:
            raise SizingError(f"weight_dtype {weights!r} is not known")
        made["weight_dtype"] = dtype
    if quant and quant != "none":
        made["quant"] = quant
        if kind == "lora":
            made["method"] = "qlora"
    elif quant == "none" and kind == "qlora" and weights == "int8":
        made["quant"] = "int8"


def _read_adapter(row: Mapping[str, str], method: str, trace: bool, made: dict[str, Any]) -> None:
    """Rank, targets and precision of adapters."""
    rank = _whole(row, "lora_rank")
    if rank is not None:
        made["lora_rank"] = rank
    elif made["method"] in {"galore", "qgalore"}:
        made["lora_rank"] = 128
    made.update(ADAPTER_TRAITS.get(method, {}))
    targets = _text(row, "lora_targets")
    if targets:
        if _SAVED_WHOLE.search(targets):
            made["modules_to_save"] = True
            targets = targets.partition(";")[0]
        if targets.startswith(("attn", "c_attn(")):  # "attn (default c_attn / q,k,v)"
            targets = "attn"
        made["lora_targets"] = targets
    adapter = _text(row, "adapter_dtype").lower()
    if adapter and not trace:
        made["adapter_dtype"] = _DTYPES.get(adapter, adapter)


def _read_training(row: Mapping[str, str], made: dict[str, Any]) -> None:
    """Optimiser, checkpointing, attention, loss, lengths."""
    optimizer = _text(row, "optimizer").lower()
    if optimizer:
        made["optimizer_in_backward"] = "per_layer" in optimizer or optimizer == "lomo"
        if optimizer.startswith("galore"):  # "galore_adamw8bit_per_layer"
            optimizer = "adamw8bit" if "8bit" in optimizer else "adamw"
        elif optimizer.startswith("adam on"):  # "adam on one layer block"
            optimizer = "adamw"
        made["optimizer"] = _OPTIMIZER.get(optimizer, optimizer)
    checkpointing = _text(row, "grad_checkpointing").lower()
    if checkpointing:
        made["grad_checkpointing"] = _CHECKPOINTING.get(checkpointing, checkpointing)
    attention = _text(row, "attention").lower()
    if attention:
        made["attention"] = _attention(attention)
    loss = _text(row, "loss_impl").lower()
    if loss:
        made["loss_impl"] = _LOSS.get(loss, loss)
    for column in ("seq_len", "micro_batch", "grad_accum", "gpus"):
        value = _whole(row, column)
        if value is not None:
            made[column] = value
    if _text(row, "seq_len_kind").startswith("image") and "seq_len" in made:
        made["image_px"] = made["seq_len"]
    if _flag(row, "compile"):
        made["compile"] = True


def _attention(text: str) -> str:
    """A kernel's name as people write it ("flash_attention_2", "sdpa(mem-efficient)")."""
    if text.startswith(("fa2", "fa3", "flash")):
        return "flash"
    if text.startswith("sdpa"):
        return "eager" if "math" in text else "mem_efficient" if "mem" in text else "sdpa"
    return {"math": "eager", "flex_attention": "flex"}.get(text, text)


def _read_machines(row: Mapping[str, str], made: dict[str, Any]) -> None:
    """Sharding, tensor parallelism and offloading."""
    sharding = _text(row, "sharding").lower()
    if sharding:
        base = sharding.partition("+")[0]
        made["sharding"] = _SHARDING.get(base, base)
        tensor = _TENSOR.search(sharding)
        if tensor:
            made["tensor_parallel"] = int(tensor.group(1))
    offload = _text(row, "offload").lower()
    if offload:
        made["offload"] = "params+optimizer" if offload.startswith(("cpu", "nvme")) else offload


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
