"""Frameworks as presets: each only sets fields of a `Setup`, with the source of its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final

from warehouse.sizing.errors import SizingError
from warehouse.sizing.setup import Setup


@dataclass(frozen=True)
class Preset:
    """What a framework does unless told otherwise.

    Attributes:
        name: as a user types it.
        source: where the defaults are documented.
        fields: of `Setup`, for every method.
        by_method: further fields for one method.
        upcasts: whether full fine-tuning under FSDP holds fp32 parameters: accelerate casts what
            trains up under mixed precision, so that it takes 20 bytes a parameter over all GPUs.
    """

    name: str
    source: str
    fields: Mapping[str, Any]
    by_method: Mapping[str, Mapping[str, Any]]
    upcasts: bool = False


_NF4: Final = {"quant": "nf4"}
PRESETS: Final[dict[str, Preset]] = {
    p.name: p
    for p in (
        Preset(
            "transformers",
            "transformers docs, TrainingArguments with bf16: autocast; peft docs, k-bit training",
            {"attention": "sdpa", "loss_impl": "standard", "packing": False, "autocast": True},
            {"qlora": _NF4 | {"kbit_fp32": True}},
            upcasts=True,
        ),
        Preset(
            "peft",
            "peft examples and benchmarks: a plain loop without autocast, adapters in fp32",
            {"attention": "sdpa", "loss_impl": "standard", "packing": False},
            {"qlora": _NF4 | {"kbit_fp32": True}},
        ),
        Preset(
            "trl",
            "huggingface.co/docs/trl SFTConfig: gradient_checkpointing true, chunked loss",
            {"attention": "sdpa", "loss_impl": "chunked", "packing": False, "autocast": True},
            {"qlora": _NF4 | {"kbit_fp32": True}},
            upcasts=True,
        ),
        Preset(
            "axolotl",
            "docs.axolotl.ai config reference: sample_packing, flash_attention, cut cross entropy",
            {
                "attention": "flash", "loss_impl": "cut_ce", "packing": True, "autocast": True,
                "fast_kernels": True,
            },
            {"qlora": _NF4 | {"kbit_fp32": False}},
            upcasts=True,
        ),
        Preset(
            "torchtune",
            "pytorch.org/torchtune recipes: bf16 throughout, adapters in bf16, chunked loss",
            {
                "attention": "sdpa", "loss_impl": "chunked", "packing": True,
                "adapter_dtype": "bf16", "kbit_fp32": False, "foreach": False,
            },
            {
                "qlora": {"quant": "nf4-dq"},
                "full": {"optimizer": "adamw8bit", "optimizer_in_backward": True},
            },
        ),
        Preset(
            "unsloth",
            "docs.unsloth.ai: 4-bit, offloaded checkpoints, fused linear loss, 8-bit Adam",
            {
                "attention": "flash", "loss_impl": "fused_linear_ce", "offload": "activations",
                "optimizer": "adamw8bit", "kbit_fp32": False, "packing": False,
            },
            {"qlora": _NF4},
        ),
        Preset(
            "llama-factory",
            "llamafactory.readthedocs.io: cutoff_len, upcast of layer norms, flash_attn auto",
            {"attention": "sdpa", "loss_impl": "standard", "packing": False, "autocast": True},
            {"qlora": _NF4 | {"kbit_fp32": True}},
            upcasts=True,
        ),
        Preset(
            "ms-swift",
            "swift.readthedocs.io command line parameters: gradient checkpointing on, flash",
            {
                "attention": "flash", "loss_impl": "standard", "packing": False,
                "allocator_slack": 1.8,
            },
            {"qlora": _NF4 | {"kbit_fp32": True}},
            upcasts=True,
        ),
        Preset(
            "fsdp-qlora",
            "AnswerDotAI fsdp_qlora README: bf16 throughout, adapters too, reentrant checkpoints",
            {
                "attention": "sdpa", "loss_impl": "standard", "packing": False,
                "adapter_dtype": "bf16", "kbit_fp32": False, "sharding": "fsdp",
            },
            {"qlora": _NF4},
        ),
        Preset(
            "litgpt",
            "litgpt tutorials: bf16-true, adapters in bf16, lm_head_chunk_size 128",
            {
                "attention": "sdpa", "loss_impl": "chunked", "packing": False,
                "adapter_dtype": "bf16", "kbit_fp32": False, "grad_checkpointing": "none",
                "modeling": "litgpt", "lora_dropout": True, "loads_whole": True,
                "keeps_quantized_inputs": True,
            },
            {"qlora": _NF4},
        ),
        Preset(
            "torchtitan",
            "torchtitan performance.md: FSDP2, fp32 parameters, bf16 compute, fused AdamW",
            {
                "attention": "sdpa", "loss_impl": "standard", "packing": True,
                "weight_dtype": "fp32", "compute_dtype": "bf16", "autocast": True,
                "sharding": "fsdp", "foreach": False, "grad_checkpointing": "selective",
                "outputs_kept": False,
            },
            {},
        ),
        Preset(
            "xtuner",
            "xtuner configs: mmengine AmpOptimWrapper, packed to max_length, NF4 double quantised",
            {"attention": "flash", "loss_impl": "standard", "packing": True, "autocast": True},
            {"qlora": {"quant": "nf4-dq", "kbit_fp32": True}},
        ),
        Preset(
            "deepspeed",
            "deepspeed.readthedocs.io: bf16 with fp32 master weights and states, reduce buckets",
            {"attention": "sdpa", "loss_impl": "standard", "packing": False},
            {"full": {"master_weights": True}},
        ),
    )
}  # fmt: skip

ALIASES: Final = {
    "fms-acceleration": "transformers", "fitcheck": "peft",
    "qwen-finetune": "transformers", "swift": "ms-swift", "llamafactory": "llama-factory",
    "chatglm": "transformers", "hf": "transformers",
    "galore": "peft", "liger": "transformers", "minicpm": "transformers",
    "minicpm-v": "deepspeed", "thudm": "transformers", "diffusers": "peft",
    "torchao": "torchtune", "fsdp_qlora": "fsdp-qlora", "badam": "llama-factory",
}  # fmt: skip
_FIELDS: Final = frozenset(f.name for f in fields(Setup))


def find_preset(framework: str) -> Preset:
    """The preset for a framework as people write it ("trl/peft", "LLaMA-Factory").

    Raises:
        SizingError: no preset has a name like it; the nearest are given.
    """
    text = framework.strip().lower().replace(" ", "-")
    if text in PRESETS:
        return PRESETS[text]
    for name in (*PRESETS, *ALIASES):
        if text.startswith(name):
            return PRESETS[ALIASES.get(name, name)]
    near = get_close_matches(text, [*PRESETS, *ALIASES], 3, 0.5)
    hint = f"; did you mean {', '.join(near)}?" if near else f"; known: {', '.join(PRESETS)}"
    raise SizingError(f"framework {framework!r} has no preset{hint}")


def preset_fields(preset: Preset, method: str) -> dict[str, Any]:
    """The fields that a preset sets for a method."""
    made = dict(preset.fields) | {"framework": preset.name, "method": method}
    if method == "qlora":
        made["quant"] = "nf4"
    made.update(preset.by_method.get(method, {}))
    return made


def fsdp_fields(preset: Preset, method: str, sharding: str | None) -> dict[str, Any]:
    """The precision that a framework gives full fine-tuning under FSDP, where it changes it."""
    if preset.upcasts and method == "full" and sharding == "fsdp":
        return {"weight_dtype": "fp32", "compute_dtype": "bf16", "autocast": True}
    return {}


def make_setup(framework: str, method: str, **changes: Any) -> Setup:
    """A set-up with a framework's defaults and some fields changed.

    Raises:
        SizingError: the framework or a field is unknown, or the set-up is none that a run can be.
    """
    unknown = set(changes) - _FIELDS
    if unknown:
        raise SizingError(f"a set-up has no field {', '.join(sorted(unknown))}")
    preset = find_preset(framework)
    sharded = fsdp_fields(preset, method, changes.get("sharding"))
    return Setup(**(preset_fields(preset, method) | sharded | changes))
