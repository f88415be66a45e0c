"""What autograd keeps of one transformer block between forward and backward.

Every rule follows from what an operation needs for its gradient (PyTorch `derivatives.yaml`): a
product keeps the factor whose partner needs a gradient, a linear layer its input when its weight
trains, a norm its input and one statistic per row, flash attention q, k, v, its output and the
log-sum-exp. The order of casts is that of the modelling code of transformers 5 and of the LoRA
layers of peft 0.21 (each target casts its own copy of the input to the adapter's precision).
All results are bytes per token (or per token and context position), so that a batch is a product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from warehouse.sizing.model import Block, Linear, ModelSpec

ATTENTION_GROUP: Final = frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value",
                                    "c_attn", "Wqkv", "q_a_proj", "kv_a_proj_with_mqa",
                                    "in_proj_qkvz", "in_proj_ba"})  # fmt: skip
"""Projections that read the normed input of the attention."""


EAGER_COPIES: Final = 2.5
"""Score-sized tensors in compute precision during the backward pass of eager attention: one by the
rules of autograd, one and a half more in measured runs (fit to four runs on a T4)."""
KEPT_INPUT_BYTES: Final = 3.2
"""Bytes per element of the inputs that old 4-bit layers keep: 2 in some releases, 4 where the layer
casts to fp32 first. Fit: litgpt's rows of 2023 ask for 2, those of 2024 for 4."""


@dataclass(frozen=True)
class Training:
    """Which parts of a block have a gradient, and in what precisions.

    Attributes:
        base: whether the block's own weights and norms train.
        targets: module names with a LoRA pair beside them.
        rank: of those pairs.
        compute_bytes: bytes of an activation.
        adapter_bytes: bytes of an adapter weight and of its input copy.
        fp32_stream: whether the residual stream is fp32 (peft's k-bit preparation casts norms
            and embeddings up, and the stream follows them).
        eager: whether attention scores are materialised.
        dropout: whether LoRA inputs go through a dropout.
        litgpt: whether the block is litgpt's: one fused projection whose views live on, keys and
            values repeated to all heads, and the framework's own GELU.
        outputs: whether every linear layer's output is scaled by a trained vector (adapter v2,
            where the norms train too).
        scales: whether keys, values and the down projection's input are scaled by trained vectors
            (IA3).
        keeps_inputs: whether quantised linear layers keep their input although their weight is
            frozen (bitsandbytes before 0.43).
        fast: whether norms are fused kernels that keep their input in compute precision.
    """

    base: bool
    targets: frozenset[str] = frozenset()
    rank: int = 0
    compute_bytes: float = 2.0
    adapter_bytes: float = 4.0
    fp32_stream: bool = False
    eager: bool = False
    dropout: bool = False
    litgpt: bool = False
    outputs: bool = False
    scales: bool = False
    keeps_inputs: bool = False
    fast: bool = False


@dataclass(frozen=True)
class Kept:
    """Bytes that one block keeps.

    Attributes:
        saved: per token, everything that its backward pass needs.
        scores: per token and context position, where scores are materialised.
        score_work: temporaries of their backward pass, per token and context position.
        stream: per token, the residual stream at its input: what a checkpoint keeps.
        working: per token, the largest set of temporaries during its backward pass.
        unneeded: per token, what the first block does not keep when nothing before its first
            adapter has a gradient (a frozen model without checkpointing).
    """

    saved: float
    scores: float
    score_work: float
    stream: float
    working: float
    unneeded: float


def _norm(spec: ModelSpec, width: float, rows: float, t: Training) -> float:
    """One norm over `width` elements in `rows` rows per token, without its output."""
    c = 4.0 if t.fp32_stream else t.compute_bytes
    kind = spec.traits.norm
    trains = t.base or t.outputs
    if t.fast and kind == "rms":
        return c * width + 4 * rows
    if kind == "layer":
        return c * width + 8 * rows
    if kind == "bare":
        return 4 * width + 8 * rows
    if spec.traits.unit_offset_norm or spec.model_type in {"olmo2", "olmo3"}:
        return (8 if trains else 4) * width + 4 * rows
    return (4 + (c if trains else 0)) * width + 4 * rows


def _inputs(linears: list[Linear], width: float, t: Training, already: bool = False) -> float:
    """What linears that read one tensor of `width` keep of it.

    Args:
        linears: the matrices.
        width: elements per token of their common input.
        t: what trains.
        already: whether another operation keeps the same tensor in compute precision.
    """
    if not linears:
        return 0.0
    c, a = t.compute_bytes, t.adapter_bytes
    adapted = [x for x in linears if x.name in t.targets]
    kept = 0.0
    shared = t.base or t.keeps_inputs or (bool(adapted) and a == c and not t.dropout)
    if t.keeps_inputs:
        kept += KEPT_INPUT_BYTES * width
    elif shared and not already:
        kept += c * width
    copies = len(adapted)
    if t.litgpt and copies and adapted[0].name in ATTENTION_GROUP:
        copies = 1
    if t.dropout:  # the dropped copy and its mask, one byte per element
        kept += copies * (a + 1) * width
    elif a != c:
        kept += copies * a * width
    return kept + copies * a * t.rank


def _activation(spec: ModelSpec, width: float, t: Training) -> tuple[float, bool]:
    """What the non-linearity keeps, and whether the down projection's input is part of it."""
    c = t.compute_bytes
    kind = spec.traits.activation
    if t.litgpt and kind == "gelu_new":
        kind = "gelu"
    if spec.traits.gated:
        # act(gate) x up: the input of act, its output, and up
        inner = {"gelu_new": 5, "clamped_glu": 6}.get(kind, 3)
        return inner * c * width, False
    if kind == "gelu_new":  # 0.5 x (1 + tanh(...)): x, tanh, and both factors
        return 4 * c * width, False
    if kind == "relu":
        return c * width, True
    if kind == "quick_gelu":
        return 2 * c * width, False
    return c * width, False


@lru_cache(maxsize=4096)
def keep(spec: ModelSpec, block: Block, t: Training) -> Kept:
    """Bytes that one block keeps, by the rules of this module."""
    c, h = t.compute_bytes, spec.hidden_size
    tr = spec.traits
    stream = 4.0 if t.fp32_stream else c
    total = 0.0
    attention = [x for x in block.linears if x.role == "attention" and "cross." not in x.name]
    entry = [x for x in attention if x.name in ATTENTION_GROUP or x.d_in == h]
    entry = [x for x in entry if x.name != tr.o_name or x.name in ATTENTION_GROUP]
    exits = [x for x in attention if x not in entry]
    mlp = [x for x in block.linears if x.role == "mlp"]

    # norms
    norms = _norm(spec, h, 1, t)
    if tr.parallel and tr.norms == 2 and tr.norm == "layer":
        total += norms + 8  # both norms read the same tensor
    else:
        total += tr.norms * norms
    # a norm's output is kept by the linears that read it
    total += _inputs(entry, h, t)
    up = [x for x in mlp if x.d_in == h]
    down = [x for x in mlp if x.d_in != h or x not in up]
    if mlp and not spec.experts:
        up, down = mlp[:-1], mlp[-1:]
    total += _inputs(up, h, t, already=tr.parallel and tr.norms == 1 and t.base)

    # attention
    q, kv = float(spec.q_dim), float(spec.kv_dim)
    v = float(spec.num_heads * spec.v_head_dim) if spec.kv_lora_rank else kv
    if spec.kv_lora_rank:
        q = kv = float(spec.num_heads * spec.head_dim)
    heads = spec.num_heads
    if tr.qk_norm == "head":
        total += _norm(spec, q, heads, t) + _norm(spec, kv, spec.num_kv_heads, t)
    elif tr.qk_norm == "full":
        total += _norm(spec, q, 1, t) + _norm(spec, kv, 1, t)
    if t.litgpt:
        # the fused projection stays whole for v; q, and keys and values repeated to all heads
        total += c * (q + 2 * kv) + c * 2 * q + (c * q if kv < q else 0.0)
        # the update of the adapted parts, before it is scaled and put in place
        total += c * sum(x.d_out for x in entry if x.name in t.targets)
    elif tr.fused_qkv:
        # v is a view of the fused projection, which therefore stays whole
        total += c * (q + 2 * kv)
        if tr.positions == "rope":
            total += c * (q + kv)
    else:
        total += c * (q + kv + v)
    out = float(spec.num_heads * spec.v_head_dim) if spec.kv_lora_rank else q
    total += c * out + 4 * heads
    scores = score_work = 0.0
    if t.eager:
        # the softmax in fp32 and its copy in compute precision; backward the gradients of both
        scores = heads * (4 + (c if c < 4 else 0.0))
        score_work = heads * (4 + EAGER_COPIES * c)
        if kv < q:
            total += c * 2 * (q - kv)  # keys and values repeated to all heads
    total += _inputs(exits[-1:], out, t, already=True)
    if spec.kv_lora_rank:
        for x in exits[:-1]:
            total += _inputs([x], x.d_in, t) + _norm(spec, x.d_in, 1, t)

    # feed-forward
    width = float(spec.intermediate_size)
    if block.kind == "moe" or (block.kind == "linear" and spec.experts):
        routed = spec.experts_per_token * float(spec.moe_intermediate_size)
        total += _activation(spec, routed, t)[0]
        # routed copies of the hidden state and of the outputs, weighted and sorted (0.6 from
        # traces), and the router's softmax
        k = spec.experts_per_token
        total += c * h * k * (2.6 if t.base else 1.6) + c * routed * (1 if t.base else 0)
        total += 4.0 * spec.experts
        if spec.shared_intermediate_size:
            shared = float(spec.shared_intermediate_size)
            total += _activation(spec, shared, t)[0]
            total += _inputs(down, shared, t)
    else:
        if block.kind == "dense" and spec.dense_layers and spec.dense_intermediate_size:
            width = float(spec.dense_intermediate_size)
        kept, holds = _activation(spec, width, t)
        total += kept + _inputs(down, width, t, already=holds)
    if t.outputs:
        total += c * sum(x.d_out for x in block.linears if x.module)
    if t.scales:
        total += c * (2 * kv + spec.intermediate_size)
    if t.litgpt and t.keeps_inputs:
        total += c * out  # the attention's output, copied into the order that the projection reads
    if block.kind == "decoder":  # cross attention: as much again as the self attention
        total += _norm(spec, h, 1, t) + _inputs(entry, h, t) + c * (q + 2 * kv + q) + 4 * heads
        total += _inputs(exits[-1:], out, t, already=True)

    widest = max(
        0.0 if spec.experts else width,
        # experts run one after the other: half of the routed width is in flight
        float(spec.moe_intermediate_size * spec.experts_per_token) / 2,
        float(spec.shared_intermediate_size),
    )
    # gradients of the product and of both branches (of the activation's input and output where
    # not gated), and of the stream; the down projection's input is freed by then
    copies = 3.0 if tr.gated or (tr.activation == "gelu_new" and not t.litgpt) else 2.0
    if tr.activation == "clamped_glu":
        copies = 6.0
    if t.fast and tr.gated:
        copies += 1.0  # fused kernels compute the activation again beside its gradients
    working = c * (copies * widest + 2 * h) - (c * widest if t.base else 0.0)
    unneeded = 0.0
    if not t.base and not t.outputs:
        unneeded = norms
        if tr.qk_norm == "head" and "k_proj" not in t.targets:
            unneeded += _norm(spec, kv, spec.num_kv_heads, t)
        if tr.parallel and not any(x.name in t.targets for x in mlp):
            unneeded += _activation(spec, width, t)[0]
    return Kept(total, scores, score_work, stream * h, working, unneeded)
