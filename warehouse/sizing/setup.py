"""How a model is fine-tuned: one frozen record of every choice that moves memory or speed.

A `Setup` is checked when it is made; each refusal is one line. Defaults are those of Hugging Face
Trainer with peft; other frameworks are presets that set these same fields (`presets.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from warehouse.sizing.errors import NotSupported, SizingError
from warehouse.sizing.model import ModelSpec

Method = Literal[
    "full", "lora", "qlora", "dora", "adapter", "adapter_v2", "prefix", "prompt", "ptuning",
    "ia3", "freeze", "ln_tuning", "galore", "qgalore", "lisa", "badam", "llamapro",
]  # fmt: skip
METHODS: Final = frozenset(Method.__args__)  # type: ignore[attr-defined]
ADAPTER_METHODS: Final = frozenset(
    {"lora", "qlora", "dora", "adapter", "adapter_v2", "prefix", "prompt", "ptuning", "ia3"}
)
"""Methods that freeze the model and train small modules beside it."""
DIFFUSION_METHODS: Final = frozenset({"full", "lora", "qlora", "dora", "ln_tuning"})
RANKED_METHODS: Final = frozenset({"lora", "qlora", "dora", "galore", "qgalore"})

DTYPE_BYTES: Final = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
"""Bytes per element of a training precision."""
QUANT_BITS: Final = {
    "none": 16.0,
    "nf4": 4 + 32 / 64,
    "nf4-dq": 4 + 8 / 64 + 32 / (64 * 256),
    "int8": 8.0,
    "gptq-int4": 4 + (16 + 4) / 128,
    "gptq-int8": 8 + (16 + 8) / 128,
    "int4": 4 + 32 / 64,
    "mxfp4": 4 + 8 / 32,
}
"""Bits per element of a packed weight with its scales: NF4 keeps one fp32 scale per 64 elements
(QLoRA, arXiv 2305.14314, section 3), double quantisation stores those in 8 bits with one fp32 per
256; GPTQ one fp16 scale and a zero per 128; MXFP4 one byte per 32 (OCP MX 1.0)."""

OPTIMIZERS: Final = frozenset({
    "adamw", "adamw_fused", "adamw_foreach", "adamw8bit", "paged_adamw", "paged_adamw8bit",
    "adamw4bit", "adafactor", "sgd", "sgd_momentum", "lion", "lion8bit",
})  # fmt: skip
SHARDINGS: Final = frozenset({"none", "ddp", "zero1", "zero2", "zero3", "fsdp", "device_map"})
OFFLOADS: Final = frozenset({"none", "optimizer", "params", "params+optimizer", "activations"})
ATTENTIONS: Final = frozenset({"flash", "sdpa", "mem_efficient", "eager", "xformers", "flex"})
LOSSES: Final = frozenset({"standard", "fp32", "fused_ce", "fused_linear_ce", "cut_ce", "chunked"})
MODELING: Final = frozenset({"transformers", "litgpt"})
CHECKPOINTING: Final = frozenset({"none", "full", "selective"})


@dataclass(frozen=True)
class Setup:
    """One way to fine-tune a model.

    Attributes:
        method: what is trained.
        weight_dtype: precision of weights that are not quantised.
        compute_dtype: precision of activations; None means `weight_dtype`, or bf16 where the
            weights are fp32 under autocast.
        quant: packing of the frozen weights; "none" unless the method is quantised.
        adapter_dtype: precision of adapter weights; peft keeps them in fp32
            (`autocast_adapter_dtype`).
        kbit_fp32: whether what stays unquantised is cast to fp32, as peft's
            `prepare_model_for_kbit_training` does.
        lora_rank: rank of LoRA-like updates, or the virtual tokens of prefix and prompt tuning.
        lora_targets: "all-linear", "attention", "q,v", a comma list of module names.
        modules_to_save: whether embedding and head are trained in full beside the adapter.
        optimizer: one of `OPTIMIZERS`.
        master_weights: an fp32 copy of what is trained, beside bf16 or fp16 weights.
        grad_dtype: precision of gradients; None means that of the trained weights.
        state_dtype: precision of Adam's two moments; None means that of the trained weights.
        foreach: whether the optimiser step runs over all tensors at once, with temporaries of
            their size; False is one tensor at a time, or fused.
        optimizer_in_backward: each gradient is used and freed as it appears.
        grad_checkpointing: "none", "full" or "selective" (every other block, or cheap operations).
        attention: the attention kernel.
        seq_len: tokens per sample; for a vision encoder patches and class token.
        image_px: side of a square image in pixels, for diffusion and vision; 0 to go by `seq_len`.
        micro_batch: samples per GPU and forward pass.
        grad_accum: forward passes per optimiser step.
        packing: whether samples are packed to `seq_len`.
        loss_impl: how the cross entropy is computed.
        gpus: GPUs in total.
        nodes: machines that they sit in.
        sharding: how state is spread over GPUs.
        tensor_parallel: GPUs that split each matrix.
        offload: what lives in host memory.
        framework: the preset that it came from.
        compile: whether torch.compile fuses element-wise chains.
        autocast: whether fp32 weights are cast to `compute_dtype` per operation.
        lora_dropout: whether LoRA inputs go through a dropout (each target then saves its own).
        outputs_kept: whether the training loop holds the model's output, and with it the logits,
            until after the backward pass.
        quantize_experts: whether the loader also packs stacked experts.
        fast_kernels: whether norms, rotary embeddings and LoRA run as fused kernels that keep
            their input once, in compute precision (Unsloth, fms-acceleration's "foak", Liger).
        modeling: whose blocks run: "transformers" or "litgpt" (fused projections, head never
            tied).
        loads_whole: whether every GPU holds the whole model while it is sharded.
        keeps_quantized_inputs: whether quantised layers keep their input (bitsandbytes < 0.43).
        delta_copies: fp32 matrices of a target's full size that an adapter rebuilds and keeps
            (LoHa, LoKr, DoRA and transforms in frequency space).
        adapter_inputs: whether adapters keep a copy of their input.
        allocator_slack: what the allocator holds beyond need, as a multiple of the logits: samples
            of varying length fragment its cache.
    """

    method: str = "lora"
    weight_dtype: str = "bf16"
    compute_dtype: str | None = None
    quant: str = "none"
    adapter_dtype: str = "fp32"
    kbit_fp32: bool = True
    lora_rank: int = 16
    lora_targets: str = "all-linear"
    modules_to_save: bool = False
    optimizer: str = "adamw"
    master_weights: bool = False
    grad_dtype: str | None = None
    state_dtype: str | None = None
    foreach: bool = True
    optimizer_in_backward: bool = False
    grad_checkpointing: str = "full"
    attention: str = "sdpa"
    seq_len: int = 2048
    image_px: int = 0
    micro_batch: int = 1
    grad_accum: int = 1
    packing: bool = True
    loss_impl: str = "standard"
    gpus: int = 1
    nodes: int = 1
    sharding: str = "none"
    tensor_parallel: int = 1
    offload: str = "none"
    framework: str = "transformers"
    compile: bool = False
    autocast: bool = False
    lora_dropout: bool = False
    outputs_kept: bool = True
    quantize_experts: bool = True
    fast_kernels: bool = False
    modeling: str = "transformers"
    loads_whole: bool = False
    keeps_quantized_inputs: bool = False
    delta_copies: float = 0.0
    adapter_inputs: bool = True
    allocator_slack: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no run can be.

        Raises:
            SizingError: a value is unknown, not positive, or contradicts another.
        """
        for name, value, known in (
            ("method", self.method, METHODS),
            ("weight_dtype", self.weight_dtype, DTYPE_BYTES),
            ("adapter_dtype", self.adapter_dtype, DTYPE_BYTES),
            ("quant", self.quant, QUANT_BITS),
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("sharding", self.sharding, SHARDINGS),
            ("attention", self.attention, ATTENTIONS),
            ("loss_impl", self.loss_impl, LOSSES),
            ("grad_checkpointing", self.grad_checkpointing, CHECKPOINTING),
            ("modeling", self.modeling, MODELING),
        ):
            if value not in known:
                raise SizingError(f"{name} {value!r} is not one of {', '.join(sorted(known))}")
        for name in ("seq_len", "micro_batch", "grad_accum", "gpus", "nodes", "tensor_parallel"):
            if getattr(self, name) < 1:
                raise SizingError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.method in ADAPTER_METHODS | RANKED_METHODS and self.lora_rank < 1:
            raise SizingError(f"lora_rank is {self.lora_rank}; it must be at least 1")
        if self.method in ADAPTER_METHODS and not self.lora_targets.strip():
            raise SizingError("lora_targets is empty; name modules, or say all-linear")
        if self.method == "qlora" and self.quant == "none":
            raise SizingError("qlora needs a quant (nf4, nf4-dq, int8, gptq-int4)")
        if self.method == "full" and self.quant != "none":
            raise SizingError(f"{self.quant} weights cannot be trained in full; use qlora")
        for part in self.offload.split("+"):
            if part not in OFFLOADS:
                raise SizingError(
                    f"offload {self.offload!r} is not none, or params, optimizer, activations "
                    "joined by +"
                )
        if self.gpus % self.nodes:
            raise SizingError(f"{self.gpus} GPUs cannot spread evenly over {self.nodes} nodes")
        if self.gpus % self.tensor_parallel:
            raise SizingError(
                f"{self.gpus} GPUs cannot split evenly into groups of {self.tensor_parallel}"
            )
        if self.gpus > 1 and self.sharding == "none":
            object.__setattr__(self, "sharding", "ddp")
        object.__setattr__(self, "_hash", hash(tuple(self.__dict__.values())))

    def __hash__(self) -> int:
        """The hash, computed once."""
        return self._hash  # type: ignore[attr-defined, no-any-return]

    @property
    def tokens(self) -> int:
        """Tokens per GPU and forward pass."""
        return self.seq_len * self.micro_batch

    @property
    def gpus_per_node(self) -> int:
        """GPUs in one machine."""
        return self.gpus // self.nodes

    @property
    def shards(self) -> int:
        """GPUs that a sharded tensor is spread over, after tensor parallelism."""
        return self.gpus // self.tensor_parallel

    @property
    def is_adapter(self) -> bool:
        """Whether the base model is frozen."""
        return self.method in ADAPTER_METHODS

    @property
    def activation_dtype(self) -> str:
        """Precision that matrix products run in."""
        if self.compute_dtype:
            return self.compute_dtype
        return "bf16" if self.autocast and self.weight_dtype == "fp32" else self.weight_dtype

    def but(self, **changes: Any) -> Setup:
        """The same set-up with some fields changed, checked again.

        Raises:
            SizingError: the changed set-up is none that a run can be.
        """
        return replace(self, **changes)


def check_pair(model: ModelSpec, setup: Setup, position_stretch: float = 1.0) -> None:
    """Refuse a set-up that this model cannot take.

    Args:
        model: the model.
        setup: the set-up.
        position_stretch: how far a rotary model may be run beyond its stated positions (RoPE
            scaling); a learned table of positions can never be exceeded.

    Raises:
        SizingError: the sequence is longer than the model's positions.
        NotSupported: the method needs something that the model has not.
    """
    limit = model.max_position
    if model.is_diffusion and (setup.image_px or setup.seq_len) < 64:
        raise SizingError(f"{model.hf_id}: an image of {setup.image_px} pixels is too small")
    if model.is_text and limit:
        stretch = 1.0 if model.traits.positions == "learned" else position_stretch
        if setup.seq_len > stretch * limit:
            raise SizingError(
                f"{model.hf_id} has {limit} positions; a sequence of {setup.seq_len} does not fit"
            )
    if not model.is_text and setup.method in {"prefix", "prompt", "ptuning"}:
        raise NotSupported(
            f"{model.hf_id} has no text decoder; {setup.method} tuning needs virtual tokens"
        )
    if model.is_diffusion and setup.method not in DIFFUSION_METHODS:
        raise NotSupported(
            f"{model.hf_id} is a diffusion model; {setup.method} is not known for it, "
            f"{', '.join(sorted(DIFFUSION_METHODS))} are"
        )


def check_precision(
    setup: Setup, gpu: str, bf16_supported: bool, fp8_supported: bool, int8_tensor: bool
) -> str | None:
    """Say why a card cannot run this precision, or None when it can.

    Args:
        setup: the set-up.
        gpu: the card's name, for the message.
        bf16_supported: the card's column of that name: NVIDIA cards from compute capability 8.0.
        fp8_supported: whether the card has FP8 tensor cores (from 8.9).
        int8_tensor: whether it has INT8 tensor cores (from 7.2; LLM.int8 needs them).
    """
    used = {setup.weight_dtype, setup.activation_dtype}
    if "bf16" in used and not bf16_supported:
        return f"{gpu} has no BF16: use fp16 or fp32"
    if "fp8" in used and not fp8_supported:
        return f"{gpu} has no FP8 tensor cores: use bf16 or fp16"
    if setup.quant == "int8" and not int8_tensor:
        return f"{gpu} has no INT8 tensor cores: use nf4"
    return None
