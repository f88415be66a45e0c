"""How much memory one GPU needs, as the largest of four moments, each a sum of named terms.

    load            weights, and what quantising them on the device takes
    forward_loss    weights, optimiser state, everything kept for the backward pass, the logits
    backward        weights, optimiser state, gradients so far, one block's working set
    optimizer_step  weights, gradients, optimiser state, the step's temporaries

The four never overlap, so the peak is their maximum, not their sum. `live` is the bytes of live
tensors; `allocated` what `torch.cuda.max_memory_allocated` reports (sizes rounded up, work spaces);
`reserved` adds what the caching allocator holds beyond that; `device` adds the CUDA context and
communication libraries: what nvidia-smi shows and what has to fit a card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from warehouse.sizing import overhead, vision
from warehouse.sizing.activations import Training, keep
from warehouse.sizing.errors import SizingError
from warehouse.sizing.model import Linear, ModelSpec
from warehouse.sizing.setup import DTYPE_BYTES, QUANT_BITS, Setup, check_pair

GIB: Final = 2.0**30
METRICS: Final = ("live", "allocated", "reserved", "device")
PHASES: Final = ("load", "forward_loss", "backward", "optimizer_step")
TERMS: Final = (
    "weights", "gradients", "optimizer", "activations", "logits", "buffers", "temporaries"
)  # fmt: skip

LOGIT_BYTES: Final = {
    "standard": 12.0,
    "fp32": 12.0,
    "fused_ce": 8.0,
    "fused_linear_ce": 0.0,
    "cut_ce": 0.0,
    "chunked": 2.0,
}
"""Bytes per token and vocabulary entry that live at the loss.

standard: transformers 5 casts the logits to fp32 and keeps their log-softmax (4); its backward
holds the gradient of the loss (4) and of the logits (4); a loop that keeps the model's output adds
the logits as the head made them. fused_ce: the kernel writes the gradient
over the logits. fused_linear_ce, cut_ce: logits of one tile at a time. chunked: the logits of
all chunks stay in compute precision (torchtune), in litgpt beside their log-softmax; only the fp32
copies and the gradients are of one chunk."""
LITGPT_LOGIT_BYTES: Final = 8.0
"""litgpt's chunks: logits and log-softmax in bf16 by its code (4); its single-GPU runs with a
vocabulary of 50 to 128 thousand entries all ask for 7.5 to 8 (fit)."""

SHARDED_STATES: Final = frozenset({"zero1", "zero2", "zero3", "fsdp"})
DEEPSPEED_BUCKET: Final = 500_000_000
"""Elements of DeepSpeed's reduce bucket, and of its all-gather bucket, in half precision."""
DEEPSPEED_GROUP: Final = 1_000_000_000
"""Parameters that DeepSpeed's optimiser steps at a time (`sub_group_size`)."""
GRADIENTS_DUE: Final = 0.7
"""Part of the first block's gradients that are yet to come when its backward pass peaks: traces."""
UNPACKING_SHARE: Final = 0.45
"""Part of a block's backward temporaries that live while one of its matrices is unpacked: the
gradients of its input and output (traces)."""
SELECTIVE_SHARE: Final = 0.27
"""Part of the activations that per-operation selective checkpointing keeps: the outputs of every
second matrix product and of attention (torchtitan's default); fit to its published runs."""
COMPILED_SHARE: Final = 0.82
"""Part of the kept activations that torch.compile leaves by fusing element-wise chains; fit to
torchtitan's runs with and without."""

STATE_COPIES: Final = {
    "adamw": 2.0, "adamw_fused": 2.0, "adamw_foreach": 2.0, "paged_adamw": 2.0,
    "sgd": 0.0, "sgd_momentum": 1.0, "lion": 1.0, "adafactor": 0.0,
}  # fmt: skip
"""Optimiser states in the precision of what is trained, as copies of the trained parameters."""
ADAFACTOR_SHARE: Final = 0.01
"""Adafactor keeps one row and one column per matrix (arXiv 1804.04235)."""
STATE_BYTES: Final = {
    "adamw8bit": 2 * (1 + 4 / 256), "paged_adamw8bit": 2 * (1 + 4 / 256),
    "lion8bit": 1 + 4 / 256, "adamw4bit": 2 * (0.5 + 4 / 128),
}  # fmt: skip
"""Optimiser states in bytes per parameter: blocks of 256 with one fp32 scale (bitsandbytes), of
128 in 4 bits (torchao)."""


class Phase(NamedTuple):
    """One moment of a step, in bytes by term."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    temporaries: float

    @property
    def total(self) -> float:
        """Bytes of live tensors at this moment."""
        return sum(self)


class Static(NamedTuple):
    """What does not depend on the batch, in bytes of one unsharded copy.

    Attributes:
        base: frozen or trained base weights.
        adapters: adapter weights beside them.
        trainable: parameters with a gradient.
        largest: elements of the largest trained tensor.
        gradients: all gradients.
        states: optimiser states and master weights.
        step: temporaries of the optimiser step.
        block: base weights of the largest block, in compute precision, as gathered.
        outer: the same for everything outside the blocks.
        dequantized: the largest quantised matrix in compute precision.
    """

    base: float
    adapters: float
    trainable: int
    largest: int
    gradients: float
    states: float
    step: float
    block: float
    outer: float
    dequantized: float


@dataclass(frozen=True)
class Estimate:
    """The memory of one GPU (the fullest, where they differ).

    Attributes:
        model: what is trained.
        setup: how.
        phases: bytes by term for each of `PHASES`.
        gpu: name of the card that the overhead was taken for, or None.
        trainable_params: parameters with a gradient.
        unit: bytes of a unit gathered from its shards, with what is always gathered.
    """

    model: ModelSpec
    setup: Setup
    phases: Mapping[str, Phase]
    gpu: str | None
    trainable_params: int
    unit: float = 0.0

    @cached_property
    def peak_phase(self) -> str:
        """The moment that needs most."""
        return max(self.phases, key=lambda name: self.phases[name].total)

    @cached_property
    def peak(self) -> Phase:
        """The terms of that moment, in bytes."""
        return self.phases[self.peak_phase]

    @property
    def weights_gib(self) -> float:
        """Weights at the peak, adapters and master copies of weights included."""
        return self.peak.weights / GIB

    @property
    def gradients_gib(self) -> float:
        """Gradients at the peak."""
        return self.peak.gradients / GIB

    @property
    def optimizer_gib(self) -> float:
        """Optimiser states at the peak."""
        return self.peak.optimizer / GIB

    @property
    def activations_gib(self) -> float:
        """Activations at the peak."""
        return self.peak.activations / GIB

    @property
    def logits_gib(self) -> float:
        """Logits and their gradients at the peak."""
        return self.peak.logits / GIB

    @property
    def overhead_gib(self) -> float:
        """Gathered units, temporaries, allocator and context: the rest of the device figure."""
        return self.gib("device") - (self.peak.total - self.peak.buffers
                                     - self.peak.temporaries) / GIB  # fmt: skip

    def gib(self, metric: str = "device") -> float:
        """The likely peak in GiB for a metric.

        Raises:
            SizingError: the metric is none of `METRICS`.
        """
        return self.range_gib(metric)[1]

    def range_gib(self, metric: str = "device") -> tuple[float, float, float]:
        """Low, likely and high peak in GiB: 90 % of runs lie between low and high.

        Raises:
            SizingError: the metric is none of `METRICS`.
        """
        if metric not in METRICS:
            raise SizingError(f"metric {metric!r} is not one of {', '.join(METRICS)}")
        return overhead.spread(self.peak.total / GIB, self.dynamic, metric, self.setup, self.gpu)

    def terms_gib(self) -> dict[str, float]:
        """The terms at the peak in GiB, with `overhead` for the rest of the device figure."""
        terms = {name: value / GIB for name, value in zip(TERMS, self.peak, strict=True)}
        terms["overhead"] = self.gib("device") - self.peak.total / GIB
        return terms

    @cached_property
    def dynamic(self) -> overhead.Dynamic:
        """What moves during a step: the sources of allocator slack."""
        forward, backward = self.phases["forward_loss"], self.phases["backward"]
        step = self.phases["optimizer_step"]
        setup = self.setup
        elements = setup.tokens * self.model.vocab_size if forward.logits else 0
        # blocks that gradients and moments leave free serve the logits where the whole model trains
        share = 1.0 if setup.is_adapter else 0.5
        slack = setup.allocator_slack * share * forward.logits
        logits = elements / setup.tensor_parallel / GIB
        fused = setup.loss_impl == "fused_ce"
        return overhead.Dynamic(
            0.0 if fused else logits,
            logits if fused else 0.0,
            (backward.activations + backward.temporaries) / GIB,
            self.unit / GIB,
            0.0 if setup.is_adapter else step.temporaries / GIB,
            slack / GIB,
            (self.peak.total - forward.total) / GIB,
        )


def estimate(
    model: ModelSpec, setup: Setup, gpu: str | None = None, position_stretch: float = 1.0
) -> Estimate:
    """Predict the memory of a set-up.

    Args:
        model: what is trained.
        setup: how.
        gpu: the card's name, for the overhead; None for a typical data-centre card.
        position_stretch: see `check_pair`.

    Raises:
        SizingError: the set-up does not fit the model.
    """
    check_pair(model, setup, position_stretch)
    if model.is_diffusion:
        phases, trainable = vision.phases(model, setup)
        made = {name: Phase(*terms) for name, terms in phases.items()}
        return Estimate(model, setup, made, gpu, trainable, made["backward"].buffers)
    static = _static(model, _weight_key(setup))
    made, unit = _phases(model, setup, static)
    return Estimate(model, setup, made, gpu, static.trainable, unit)


# --- what is trained --------------------------------------------------------------------------


def lora_targets(model: ModelSpec, targets: str) -> frozenset[str]:
    """The module names that a target list means for this model.

    Args:
        model: the model.
        targets: "all-linear", "attention", "mlp", or names joined by "," or "|". Short names q, k,
            v, o, gate, up, down and a fused projection's parts are understood.

    Raises:
        SizingError: no name matches a matrix of the model.
    """
    return _lora_targets(model, targets)


@lru_cache(maxsize=4096)
def _lora_targets(model: ModelSpec, targets: str) -> frozenset[str]:
    linears = [x for x, _ in model.linears() if x.module]
    names = {x.name for x in linears}
    t = model.traits
    fused = {t.fused_qkv} if t.fused_qkv else set()
    attention = {x.name for x in linears if x.role == "attention"}
    mlp = {x.name for x in linears if x.role == "mlp"}
    entry = {x.name for x in linears if x.role == "attention" and x.name != t.o_name}
    up = {x.name for x in linears if x.role == "mlp" and x.d_in == model.hidden_size
          and x.name != t.mlp_names[-1]}  # fmt: skip
    short = {
        "q": fused or ({"q_proj"} & names) or {n for n in entry if n.startswith("q_")},
        "k": fused or ({"k_proj"} & names) or {n for n in entry if n.startswith("kv_")},
        "v": fused or ({"v_proj"} & names) or {n for n in entry if n.startswith("kv_")},
        "o": {n for n in attention if n == t.o_name},
        "gate": {n for n in up if "gate" in n} or up,
        "up": {n for n in up if "gate" not in n} or up,
        "down": mlp - up,
        "mlp": mlp,
        "attention": attention,
        "attn": entry,
        "self_attn": attention,
    }
    found: set[str] = set()
    unknown: list[str] = []
    for part in targets.replace("|", ",").replace(";", ",").replace("+", ",").split(","):
        name = part.strip()
        if not name or name in {"head", "lm_head"}:
            continue
        if name.startswith("all-linear"):
            found |= names
        elif name in names:
            found.add(name)
        elif short.get(name):
            found |= short[name]
        elif name.removesuffix("_proj") in short and short[name.removesuffix("_proj")]:
            found |= short[name.removesuffix("_proj")]
        elif name in {"query_key_value", "W_pack", "Wqkv", "c_attn", "qkv_proj"}:
            found |= fused or {"q_proj", "k_proj", "v_proj"} & names
        else:
            unknown.append(name)
    if unknown and not found:  # like peft, which passes over names that match nothing beside others
        raise SizingError(
            f"{model.hf_id} has no module {unknown[0]!r}; it has {', '.join(sorted(names))}"
        )
    return frozenset(found)


class WeightKey(NamedTuple):
    """The fields of a set-up that decide the static part: the key of its cache."""

    method: str
    weight_dtype: str
    compute_dtype: str
    quant: str
    adapter_dtype: str
    kbit_fp32: bool
    rank: int
    targets: str
    save: bool
    optimizer: str
    master: bool
    grad_dtype: str | None
    state_dtype: str | None
    foreach: bool
    autocast: bool
    delta: float
    inputs: bool
    experts: bool
    fast: bool
    sharded: bool
    modeling: str
    keeps_inputs: bool


def _weight_key(s: Setup) -> WeightKey:
    return WeightKey(
        s.method, s.weight_dtype, s.activation_dtype, s.quant, s.adapter_dtype, prepared(s),
        s.lora_rank, s.lora_targets, s.modules_to_save, s.optimizer,
        s.master_weights or deepspeed_master(s),
        s.grad_dtype, s.state_dtype, s.foreach, s.autocast, s.delta_copies,
        s.adapter_inputs, s.quantize_experts, s.fast_kernels,
        s.sharding in {"fsdp", "zero3"} and s.gpus > 1, s.modeling, s.keeps_quantized_inputs,
    )  # fmt: skip


def prepared(setup: Setup) -> bool:
    """Whether what stays unquantised is cast to fp32.

    peft does so for bitsandbytes, not for GPTQ; FSDP needs units of one precision and cannot.
    """
    sharded = setup.sharding in {"fsdp", "zero3"} and setup.gpus > 1
    by_bitsandbytes = setup.quant != "none" and not setup.quant.startswith("gptq")
    return by_bitsandbytes and setup.kbit_fp32 and not sharded


def deepspeed_master(setup: Setup) -> bool:
    """Whether DeepSpeed holds a flat fp32 copy of what is trained: with every ZeRO stage."""
    return setup.sharding.startswith("zero")


def packed(linear: Linear, experts: bool = True) -> bool:
    """Whether a 4- or 8-bit loader replaces this matrix: an `nn.Linear` inside a block.

    Args:
        linear: the matrix.
        experts: whether the loader also packs the stacked experts of a mixture layer.
    """
    if linear.role == "expert":
        return experts
    return linear.module and not linear.conv1d


@lru_cache(maxsize=65536)
def _static(model: ModelSpec, key: WeightKey) -> Static:
    """Everything that does not depend on the batch or on the number of GPUs."""
    weight_bytes = DTYPE_BYTES[key.weight_dtype]
    compute_bytes = DTYPE_BYTES[key.compute_dtype]
    linears = model.linears()
    total = model.params_total + model.vision_params
    vocabulary = model.embedding_params + model.head_params
    if key.modeling == "litgpt" and model.tied:
        total += model.embedding_params
        vocabulary *= 2
    if key.quant == "none":
        base = total * weight_bytes
    else:
        inside = sum(x.weights * n for x, n in linears if packed(x, key.experts))
        inside += model.vision_params  # a tower is nearly all linear layers
        rest = total - inside
        base = inside * QUANT_BITS[key.quant] / 8 + rest * (4.0 if key.kbit_fp32 else weight_bytes)
        if key.quant == "int8":  # one fp32 scale per output row
            base += sum(4 * x.d_out * x.copies * n for x, n in linears if packed(x, key.experts))
    adapters, largest = _adapters(model, key)
    if key.method in {"full", "galore", "qgalore"}:
        trainable = total - model.vision_params
        largest = _largest(model)
        trained_bytes = weight_bytes
        adapter_weights = 0.0
    elif key.method == "freeze":
        trainable = model.blocks[0][0].params * min(2, model.num_layers)
        largest = max((x.d_in * x.d_out for x, _ in linears), default=0)
        trained_bytes = weight_bytes
        adapter_weights = 0.0
    else:
        trainable = adapters
        trained_bytes = DTYPE_BYTES[key.adapter_dtype]
        adapter_weights = adapters * trained_bytes
        if key.delta and key.method in {"lora", "qlora", "dora"}:
            names = _lora_targets(model, key.targets)
            adapter_weights += key.delta * sum(
                4.0 * x.weights * n for x, n in linears if x.name in names
            )
    gradients, states, step = _training_state(key, trainable, trained_bytes, largest)
    if key.method in {"galore", "qgalore"}:  # moments live in a subspace of the given rank
        states *= min(1.0, key.rank / model.hidden_size)
    if key.save and adapter_weights:
        # peft trains copies of both matrices in the base model's precision
        more = _training_state(key, vocabulary, weight_bytes, model.embedding_params)
        gradients, states, step = (
            x + y for x, y in zip((gradients, states, step), more, strict=True)
        )
        trainable += vocabulary
        adapter_weights += vocabulary * weight_bytes
        largest = max(largest, model.embedding_params)
    largest_block = max((b for b, _ in model.blocks), key=lambda b: b.params, default=None)
    inner = largest_block.params if largest_block else 0
    if key.quant == "none" or largest_block is None:
        block = inner * compute_bytes
    else:
        pack = sum(x.weights for x in largest_block.linears if packed(x, key.experts))
        block = pack * QUANT_BITS[key.quant] / 8 + (inner - pack) * compute_bytes
    outer = (vocabulary + model.outer_params) * compute_bytes
    dequantized = 0.0
    if key.quant != "none":
        dequantized = compute_bytes * max(
            (x.d_in * x.d_out for x, _ in linears if packed(x, key.experts)), default=0
        )
    return Static(
        base,
        adapter_weights,
        trainable,
        largest,
        gradients,
        states,
        step,
        block,
        outer,
        dequantized,
    )


def _training_state(
    key: WeightKey, count: int, width: float, largest: int
) -> tuple[float, float, float]:
    """Bytes of gradients, of optimiser states, and of the step's temporaries.

    Args:
        key: the set-up.
        count: trained parameters.
        width: bytes of one.
        largest: elements of the largest trained tensor.
    """
    gradients = count * (DTYPE_BYTES[key.grad_dtype] if key.grad_dtype else width)
    state_width = DTYPE_BYTES[key.state_dtype] if key.state_dtype else width
    if key.master:
        state_width = 4.0
    if key.optimizer in STATE_BYTES:
        states = count * STATE_BYTES[key.optimizer]
    elif key.optimizer == "adafactor":
        states = count * state_width * ADAFACTOR_SHARE
    else:
        states = count * STATE_COPIES[key.optimizer] * state_width
    if key.optimizer.startswith("paged"):
        states = 0.0  # managed memory, which is outside the caching allocator and can leave the GPU
    if key.master:
        states += 4.0 * count
    step = 0.0
    if key.optimizer == "adamw_foreach" or (key.optimizer == "adamw" and key.foreach):
        step = count * state_width
    elif key.optimizer == "adamw":
        step = 2.0 * largest * state_width
    return gradients, states, step


def _largest(model: ModelSpec) -> int:
    """Elements of the model's largest tensor; experts of one layer are one tensor."""
    matrices = max((x.weights for x, _ in model.linears()), default=0)
    return max(matrices, model.embedding_params)


def _adapters(model: ModelSpec, key: WeightKey) -> tuple[int, int]:
    """Parameters of the adapters and elements of their largest tensor."""
    h, layers = model.hidden_size, model.num_layers + model.decoder_layers
    rank = key.rank
    if key.method in {"lora", "qlora", "dora"}:
        names = _lora_targets(model, key.targets)
        chosen = [(x, n) for x, n in model.linears() if x.name in names]
        params = sum(n * x.copies * rank * (x.d_in + x.d_out) for x, n in chosen)
        if "head" in key.targets and model.vocab_size:
            params += rank * (h + model.vocab_size)
        if key.method == "dora":
            params += sum(n * x.copies * x.d_out for x, n in chosen)
        return params, max((rank * max(x.d_in, x.d_out) for x, _ in chosen), default=0)
    if key.method == "prefix":
        return rank * layers * 2 * model.kv_dim, rank * layers * 2 * model.kv_dim
    if key.method in {"prompt", "ptuning"}:
        return rank * h, rank * h
    if key.method == "ia3":
        return layers * (2 * model.kv_dim + model.intermediate_size), model.intermediate_size
    if key.method == "adapter":  # LLaMA-Adapter: 10 prompt tokens in all but the first two blocks
        return (layers - 2) * (10 * h + model.num_heads), 10 * h
    if key.method == "adapter_v2":  # a bias and a scale for every linear layer, and the norms
        outs = sum(2 * x.d_out * n for x, n in model.linears()) + 2 * model.vocab_size
        return (layers - 2) * (10 * h + model.num_heads) + outs, 10 * h
    if key.method == "ln_tuning":
        return layers * model.traits.norms * h + h, h
    return 0, 0


# --- moments of a step ------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def _training(model: ModelSpec, key: WeightKey, attention: str, dropout: bool) -> Training:
    targets: frozenset[str] = frozenset()
    if key.method in {"lora", "qlora", "dora"}:
        targets = _lora_targets(model, key.targets)
    cast_up = key.kbit_fp32
    compute = DTYPE_BYTES[key.compute_dtype]
    adapter = DTYPE_BYTES[key.adapter_dtype]
    if cast_up and not key.autocast:
        compute = 4.0  # fp32 embeddings make every activation fp32
    elif key.autocast:
        adapter = compute  # the fp32 copy is cast again before the product and not kept
    return Training(
        base=key.method in {"full", "galore", "qgalore"},
        targets=targets if key.inputs else frozenset(),
        rank=key.rank if targets else 0,
        compute_bytes=compute,
        adapter_bytes=adapter,
        fp32_stream=cast_up or (key.autocast and key.weight_dtype == "fp32" and not key.sharded),
        eager=attention == "eager" or model.model_type == "bloom",
        dropout=dropout and bool(targets),
        litgpt=key.modeling == "litgpt",
        outputs=key.method == "adapter_v2",
        scales=key.method == "ia3",
        keeps_inputs=key.quant != "none" and key.keeps_inputs,
        fast=key.fast,
    )


class KeptSums(NamedTuple):
    """What the blocks keep together, in bytes per token (scores also per context position).

    Attributes:
        saved: everything, over all blocks.
        scores: materialised attention scores, over all blocks.
        stream: one checkpoint per block.
        block: the largest block's saved bytes.
        block_scores: the largest block's scores.
        working: temporaries of one block's backward pass.
        score_work: the same, per context position.
        unneeded: what a frozen first block does not keep.
    """

    saved: float
    scores: float
    stream: float
    block: float
    block_scores: float
    working: float
    score_work: float
    unneeded: float


@lru_cache(maxsize=65536)
def _kept(model: ModelSpec, key: WeightKey, attention: str, dropout: bool) -> KeptSums:
    training = _training(model, key, attention, dropout)
    kinds = [(keep(model, block, training), count) for block, count in model.blocks]
    return KeptSums(
        sum(k.saved * n for k, n in kinds),
        sum(k.scores * n for k, n in kinds),
        sum(k.stream * n for k, n in kinds),
        max(k.saved for k, _ in kinds),
        max(k.scores for k, _ in kinds),
        max(k.working for k, _ in kinds),
        max(k.score_work for k, _ in kinds),
        kinds[0][0].unneeded,
    )


def sequence(model: ModelSpec, setup: Setup) -> int:
    """Tokens of one sample: as set, or the patches of an image and its class token."""
    if setup.image_px and model.patch_size:
        patches = (setup.image_px // model.patch_size) ** 2
        return patches + (1 if model.model_type in {"vit", "clip"} else setup.seq_len)
    return setup.seq_len


def _tail_bytes(model: ModelSpec, compute_bytes: float, trains: bool) -> float:
    """What the last norm and the head keep per token."""
    h = model.hidden_size
    kept = compute_bytes * h if trains else 0.0  # the head's input
    if model.traits.norm == "layer":
        return kept + compute_bytes * h + 8
    return kept + (4 + (compute_bytes if trains else 0.0)) * h + 4


class Resident(NamedTuple):
    """What stays on one GPU through a step, in bytes.

    Attributes:
        weights: its share of the weights.
        gradients: its share of all gradients, once they exist.
        states: its share of the optimiser's states.
        step: temporaries of the optimiser step.
        gathered: buffers that live in the forward and backward pass.
        unit: a block gathered from its shards, with the gradients that appear in it.
        slack: of those, what the caching allocator gathers ahead (FSDP).
    """

    weights: float
    gradients: float
    states: float
    step: float
    gathered: float
    unit: float
    slack: float


def _resident(model: ModelSpec, setup: Setup, static: Static) -> Resident:
    compute = DTYPE_BYTES[setup.activation_dtype]
    shards, tensor = setup.shards, setup.tensor_parallel
    full_shard = setup.sharding in {"zero3", "fsdp"}
    offloaded = setup.offload.split("+")
    # with device_map whole blocks sit on each GPU
    dealt = setup.gpus if setup.sharding == "device_map" else 1
    weight_share = 1 / (shards if full_shard else 1) / tensor / dealt
    grad_share = 1 / (shards if full_shard or setup.sharding == "zero2" else 1) / tensor / dealt
    state_share = 1 / (shards if setup.sharding in SHARDED_STATES else 1) / tensor / dealt
    weights = (static.base + static.adapters) * weight_share
    if setup.autocast and setup.weight_dtype == "fp32" and setup.grad_checkpointing == "none":
        # autocast keeps its copy of every weight until the backward pass has used it
        weights += model.linear_params * compute * weight_share
    if setup.autocast and prepared(setup):
        weights += model.embedding_params * compute  # its copy of the fp32 head
    gradients = static.gradients * grad_share
    states = static.states * state_share
    step = static.step * state_share
    gathered = unit = 0.0
    if full_shard and shards > 1:
        unit = static.block / tensor
        if setup.method == "full":
            unit += static.block / tensor + model.embedding_params * compute  # their gradients
        # FSDP's root unit stays gathered; ZeRO-3 gathers each module when it runs
        gathered = static.outer if setup.sharding == "fsdp" else model.embedding_params * compute
    slack = gathered + unit if setup.sharding == "fsdp" else 0.0
    if setup.sharding == "ddp" and shards > 1:
        gathered = static.gradients / tensor  # reduction buckets beside the gradients
    if setup.sharding.startswith("zero"):
        gathered += 2 * 2.0 * min(DEEPSPEED_BUCKET, static.trainable)
        # a fused step, but fp32 copies of the gradients of one sub-group of parameters
        step = 4.0 * min(DEEPSPEED_GROUP, static.trainable * state_share)
    if "params" in offloaded and full_shard:
        weights = gradients = 0.0  # each unit comes when it is needed, its gradients leave with it
    if "optimizer" in offloaded:
        states = step = 0.0
    return Resident(weights, gradients, states, step, gathered, unit, slack)


class Flow(NamedTuple):
    """What one forward and backward pass moves, in bytes.

    Attributes:
        kept: everything that waits for the backward pass when the loss is computed.
        most: what is live when the last block's backward pass begins.
        block: what is live of one block.
        checkpoints: inputs of recomputed blocks; 0 where nothing is recomputed.
        logits: at the loss.
        work: temporaries of one block's backward pass.
        stream: gradient of the residual stream.
    """

    kept: float
    most: float
    block: float
    checkpoints: float
    logits: float
    work: float
    stream: float


def _flow(model: ModelSpec, setup: Setup, sums: KeptSums, dequantized: float) -> Flow:
    compute = DTYPE_BYTES[setup.activation_dtype]
    seq = float(sequence(model, setup))
    virtual = setup.lora_rank if setup.method in {"prompt", "ptuning"} else 0
    # sequence parallelism goes with tensor parallelism, and the head is split by vocabulary
    tokens = (seq + virtual) * setup.micro_batch / setup.tensor_parallel
    layers = model.num_layers + model.decoder_layers
    here = tokens / (setup.gpus if setup.sharding == "device_map" else 1)
    everything = here * (sums.saved + sums.scores * seq)
    if setup.is_adapter:
        everything -= here * sums.unneeded
    checkpoints = here * sums.stream
    if "activations" in setup.offload:
        checkpoints = min(checkpoints, 2 * checkpoints / layers)
    block = tokens * (sums.block + sums.block_scores * seq)
    if setup.compile:
        everything *= COMPILED_SHARE
        block *= COMPILED_SHARE
    # position ids, cosines and sines: one row for the whole batch
    rotary = seq * (8 + 2 * compute * model.head_dim) if model.traits.positions == "rope" else 0.0
    recomputed = setup.grad_checkpointing != "none"
    kept = everything
    if setup.grad_checkpointing == "full":
        kept = checkpoints
    elif setup.grad_checkpointing == "selective":
        kept = checkpoints + SELECTIVE_SHARE * (everything - checkpoints)
    # recomputing never holds more than keeping everything would
    most = min(kept + block, everything) if recomputed else everything
    # a packed matrix is unpacked beside the gradients of its input and output alone
    work = max(
        tokens * (sums.working + sums.score_work * seq),
        tokens * sums.working * UNPACKING_SHARE + dequantized,
    )
    return Flow(
        kept + rotary + tokens * _tail_bytes(model, compute, setup.method == "full"),
        most + rotary,
        min(block, most + rotary),
        checkpoints if recomputed else 0.0,
        tokens * model.vocab_size * _logit_bytes(model, setup),
        work,
        tokens * compute * model.hidden_size,
    )


def _logit_bytes(model: ModelSpec, setup: Setup) -> float:
    """Bytes per token and vocabulary entry that live at the loss."""
    compute = DTYPE_BYTES[setup.activation_dtype]
    if setup.loss_impl == "chunked" and setup.modeling == "litgpt":
        return LITGPT_LOGIT_BYTES
    per_logit = LOGIT_BYTES[setup.loss_impl]
    if model.traits.bare_loss and setup.outputs_kept and per_logit >= LOGIT_BYTES["fused_ce"]:
        # logits, shifted copy, log-softmax and its gradient in compute precision; autocast makes
        # the loss fp32 again. The fused kernel saves one log-softmax.
        fused = setup.loss_impl == "fused_ce"
        per_logit = (14.0 if fused else 18.0) if setup.autocast else (3 if fused else 4) * compute
    elif per_logit >= LOGIT_BYTES["standard"] and setup.outputs_kept:
        per_logit += 4.0 if prepared(setup) else compute
    if per_logit and model.traits.softcap:
        per_logit += compute  # the output of tanh
    return per_logit


def _phases(model: ModelSpec, setup: Setup, static: Static) -> tuple[dict[str, Phase], float]:
    """Each moment of a step, and what FSDP gathers ahead."""
    here = _resident(model, setup, static)
    sums = _kept(model, _weight_key(setup), setup.attention, setup.lora_dropout)
    flow = _flow(model, setup, sums, static.dequantized)
    weights, gradients, states, step = here[:4]
    sharded = setup.sharding in {"zero3", "fsdp"} and setup.shards > 1
    outer = block = 0.0  # gradients of the embedding (or head), and of one block
    if setup.method == "full" and gradients:
        each = gradients / static.trainable
        outer, block = model.embedding_params * each, model.blocks[0][0].params * each
    if setup.optimizer_in_backward:
        layers = model.num_layers + model.decoder_layers
        gradients, step = gradients / layers + outer, step / layers
    early = setup.grad_accum > 1 and not setup.optimizer_in_backward
    present = gradients if early else 0.0
    loading = 0.0
    if sharded and setup.loads_whole:
        loading = static.base + static.outer + 2 * static.block
    # under mixed precision FSDP the gradient of every checkpoint stays until the pass ends
    stays = flow.checkpoints if sharded and setup.autocast and setup.is_adapter else 0.0
    later = gradients - GRADIENTS_DUE * block - (0.0 if model.tied else outer)
    buffers = here.gathered + here.unit
    backward = (
        # the last block, the first block, the embedding
        Phase(weights, max(present, outer), states, flow.most, 0.0, buffers + stays, flow.work),
        Phase(weights, max(present, later), states, flow.block, 0.0, buffers, flow.work),
        Phase(
            weights,
            max(present, gradients),
            states,
            flow.stream,
            0.0,
            here.gathered,
            2 * outer if model.tied else 0.0,  # both uses' gradients and their sum
        ),
    )
    return {
        "load": Phase(weights, 0.0, 0.0, 0.0, 0.0, loading, static.dequantized),
        "forward_loss": Phase(weights, present, states, flow.kept, flow.logits, here.gathered, 0.0),
        "backward": max(backward, key=sum),
        "optimizer_step": Phase(weights, gradients, states, 0.0, 0.0, 0.0, step),
    }, here.slack
