"""How long a training step takes: arithmetic, memory traffic, launches and links, in seconds.

One formula for every method and card. The unit throughout is GPU-seconds per token: the time one
GPU spends on one token of the batch, so that its reciprocal is tokens per second per GPU, whatever
the sharding. Symbols: N matrix parameters that a token meets, L layers, h hidden width, T tokens
of one micro-batch, s attended length.

    arithmetic    (2 forward + 2 input gradient + 2 weight gradient + 2 recompute) N, the weight
                  gradient only where the weight is trained, recompute only where checkpointed
                  (Kaplan et al. arXiv 2001.08361; Korthikanti et al. arXiv 2205.05198)
    attention     causal: 2 s q L forward, 2.5 times that backward with flash kernels
                  (Dao arXiv 2307.08691)
    traffic       element-wise passes over activations and logits, at the card's memory bandwidth
    ridge         a matrix product of few rows is bound by reading its weights: rows compete with
                  peak / bandwidth (Williams et al., roofline, CACM 52:4)
    launches      kernels per layer and micro-batch, hidden behind the card's work when it is longer
    dequantise    4-bit weights rebuilt once per pass and micro-batch (QLoRA, arXiv 2305.14314)
    links         gradient reduction, parameter gathering, tensor-, context- and expert-parallel
                  exchange against the bandwidth between the GPUs (ZeRO, arXiv 1910.02054)
    bubble        (p - 1) / (m v) of a pipeline of p stages, m micro-batches and v chunks
                  (arXiv 2104.04473)
    optimizer     state read and written once per step

The fitted constants are in `FITTED`; `benchmarks/fit_throughput.py` derives them again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from warehouse.sizing.card import Card
from warehouse.sizing.errors import SizingError

STACKS: Final = ("fused", "compiled", "eager", "trainer")
"""How much a training program hides from the GPU: hand-fused kernels (Megatron, NeMo, TE), a
compiler (torch.compile), plain eager kernels, and eager kernels under a trainer's bookkeeping."""


EVALUATION_SHARE: Final = 0.145
"""Evaluation time per training time when speed is derived from a time to target: MLPerf's
Llama-2-70B LoRA on 8 GPUs, from jobs that log both (training rate x time / samples: 0.87)."""
EVALUATION_GROWTH: Final = 0.25
"""How that share grows with the GPUs over 8: 0.87 of the time trains at 8 and 16, 0.80 at 64."""


HOST_MEMORY_GBPS: Final = 25.0
"""Host memory bandwidth per GPU where the optimizer runs on the CPU: eight GPUs share the 200 GB/s
of a two-socket server of eight channels each."""
BEST_SHARE: Final = 0.97
"""No kernel is taken to run above this share of the peak."""


class Shape(NamedTuple):
    """The widths of a decoder that set its arithmetic.

    `layer_params` are the matrix elements of one layer that a token meets, on average over the
    layers; `ffn` is the width a token meets (experts per token times expert width for a mixture);
    `ffn_matrices` is 3 for gated blocks and 2 for plain ones; `params` and `params_active` count
    everything, embeddings included; `experts` and `experts_active` are 1 for dense models.
    """

    layers: float
    layer_params: float
    hidden: int
    query: int
    key_value: int
    ffn: int
    ffn_matrices: int
    vocab: int
    params: float
    params_active: float
    experts: int = 1
    experts_active: int = 1


class Work(NamedTuple):
    """One optimizer step of one job, as laid out on its GPUs.

    Attributes:
        shape: the model's widths.
        stack: the class of program, one of `STACKS`.
        framework: the program's own name, a key of `Constants.framework` where it was measured.
        trained_share: share of the base weights with a gradient: 1 in full, 0 for adapters.
        trainable_params: parameters that the optimizer updates.
        quant: packing of frozen weights: "" (none), "int8", "nf4" or "gptq".
        precision: of the matrix products: bf16, fp16, fp32, fp8, fp4 or int8.
        recompute: checkpointed share of the layers' arithmetic, 0 to 1.
        flash: whether attention scores never leave the chip.
        attended: tokens of the window that attention spans; half of it is seen on average.
        tokens_micro: tokens of one micro-batch of one model replica, padding included.
        micro_batches: micro-batches per optimizer step and replica.
        useful: share of the processed tokens that is not padding.
        gpus: GPUs in all.
        tensor: GPUs that split each matrix.
        pipeline: stages that split the layers.
        context: GPUs that split each sequence.
        expert: GPUs that split the experts.
        shard: what of the state is spread: none, ddp, zero1, zero2 or zero3.
        offload: whether weights, and the optimizer of what is trained, live in host memory.
        link_gbps: GB/s per GPU and direction inside a machine.
        network_gbps: GB/s per GPU and direction between machines.
        fast_domain: GPUs that meet over `link_gbps`.
        shard_gpus: GPUs that state is spread over.
        over_pcie: whether `link_gbps` is PCIe.
        synchronises: whether the host waits for the router of every mixture layer.
        adapters_per_layer: adapter modules beside the matrices of one layer.
        watts: power limit below the board's own; None for the board's.
        plain_network: whether machines meet over a network that nobody describes, under a trainer.
        evaluated: whether the time includes evaluation pauses.
    """

    shape: Shape
    stack: str
    framework: str
    trained_share: float
    trainable_params: float
    quant: str
    precision: str
    recompute: float
    flash: bool
    attended: float
    tokens_micro: float
    micro_batches: float
    useful: float
    gpus: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    shard: str
    offload: bool
    link_gbps: float
    network_gbps: float
    fast_domain: int
    shard_gpus: int
    over_pcie: bool
    synchronises: bool
    adapters_per_layer: int
    watts: float | None
    plain_network: bool
    evaluated: bool


@dataclass(frozen=True)
class Constants:
    """The fitted numbers: shares of physical limits, counts and times. Defaults are the priors.

    Attributes:
        matmul: share of a held peak that large matrix products reach; multiplied by `stack`,
            `architecture` and `framework`, and never above `BEST_SHARE`.
        hidden_half: width per GPU at which products reach half of that.
        fp8, fp4, int8: further share in those precisions.
        attention: share of peak inside attention kernels (flash-attention 2 on Ampere).
        attention_hopper: the same kernels on Hopper and Blackwell.
        attention_fused: kernels written for the card (cuDNN, Transformer Engine).
        watts: multiplies what a watt sustains, `_TFLOPS_PER_WATT`.
        ridge: bytes read per FLOP of a product with one row: weights against arithmetic.
        nf4, gptq: bytes moved per 4-bit parameter and pass.
        overlap: exponent that blends work and overlapped communication (1 adds them, large takes
            the longer).
        overlap_trainer: the same under a trainer's eager sharding.
        launch_overlap: the same for the card's work and the host's launches.
        head_exposed: share of the output head's extra time that other pipeline stages wait.
        plain_network: slowdown of machines under a trainer over an undescribed network.
        link_share, pcie_share, network_share: share of a link's bandwidth that collectives reach.
        moe_seconds: wait of the host per mixture layer and micro-batch.
        tensor_exposed, context_exposed, expert_exposed: share of each exchange that is not hidden.
        moe: share of dense efficiency that grouped products reach.
        interleave: pipeline chunks per stage.
        straggler: slowdown per doubling of machines.
        adapter_seconds: host time per adapter module and three passes.
        adapter_traffic: passes over an adapter's input, relative to six.
        step_seconds: host time of an optimizer step.
        traffic: passes over activations relative to the count in `_traffic_bytes`, by stack.
        logits: bytes moved per vocabulary entry and token, by stack.
        layer_seconds: host time per layer and three passes, by stack.
        stack: multiplies `matmul`, by class of program.
        architecture: multiplies it by `Card.architecture_key`.
        framework: multiplies it by measured program.
        spread: log of the 80 % band's half-width, a sum over `spread_traits`.
    """

    matmul: float = 0.80
    hidden_half: float = 250.0
    fp8: float = 0.75
    fp4: float = 0.55
    int8: float = 0.6
    attention: float = 0.45
    attention_hopper: float = 0.35
    attention_fused: float = 0.5
    watts: float = 1.0
    overlap_trainer: float = 1.4
    ridge: float = 1.0
    nf4: float = 12.0
    gptq: float = 30.0
    overlap: float = 2.0
    launch_overlap: float = 4.0
    head_exposed: float = 0.5
    plain_network: float = 1.3
    link_share: float = 0.7
    pcie_share: float = 0.35
    moe_seconds: float = 0.006
    network_share: float = 0.7
    tensor_exposed: float = 0.6
    context_exposed: float = 0.3
    expert_exposed: float = 0.7
    moe: float = 0.7
    interleave: float = 4.0
    straggler: float = 0.01
    adapter_seconds: float = 0.0003
    adapter_traffic: float = 1.0
    step_seconds: float = 0.01
    traffic: Mapping[str, float] = field(
        default_factory=lambda: {"fused": 0.7, "compiled": 0.7, "eager": 1.0, "trainer": 1.2}
    )
    logits: Mapping[str, float] = field(
        default_factory=lambda: {"fused": 10.0, "compiled": 12.0, "eager": 16.0, "trainer": 20.0}
    )
    layer_seconds: Mapping[str, float] = field(
        default_factory=lambda: {
            "fused": 0.0003,
            "compiled": 0.0005,
            "eager": 0.001,
            "trainer": 0.003,
        }
    )
    stack: Mapping[str, float] = field(
        default_factory=lambda: {"fused": 1.0, "compiled": 0.9, "eager": 0.9, "trainer": 0.8}
    )
    architecture: Mapping[str, float] = field(default_factory=dict)
    framework: Mapping[str, float] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=lambda: {"base": math.log(0.2)})


class StepTime(NamedTuple):
    """GPU-seconds per processed token, by cause; `total` after overlap, bubble and stragglers."""

    arithmetic: float
    attention: float
    traffic: float
    launches: float
    dequantise: float
    optimizer: float
    links: float
    bubble: float
    total: float


def matrix_params(shape: Shape) -> float:
    """Parameters of the matrix products that one token meets, the output head included.

    The input embedding is a lookup: it costs no arithmetic. Unit: parameters.
    """
    return shape.layers * shape.layer_params + shape.vocab * shape.hidden


def flops_per_token(work: Work) -> tuple[float, float]:
    """Floating-point operations per processed token: (matrix products, attention scores).

    Matrix products: 2 N forward, 2 N for the gradient of the inputs, 2 N for the gradient of the
    weights where they are trained, 2 per checkpointed layer parameter again. The first layer's
    input gradient is counted too (1/L of a third: below the model's error). Adapters add 6 per
    parameter. Attention: 2 s q L forward under a causal mask (half of the full square), 2.5 times
    that backward, once more where recomputed.
    """
    shape = work.shape
    layers = shape.layers * shape.layer_params
    head = float(shape.vocab * shape.hidden)
    per_param = 4.0 + 2.0 * work.trained_share
    products = per_param * (layers + head) + 2.0 * work.recompute * layers
    if work.trained_share < 1.0:
        products += 6.0 * work.trainable_params
    forward = 2.0 * work.attended * shape.query * shape.layers
    return products, forward * (3.5 + work.recompute)


def peak_flops(card: Card, precision: str) -> float:
    """The card's dense matrix peak in a precision, FLOP/s.

    A precision without hardware runs in the next wider one: fp8 on Ampere is bf16, bf16 on Volta
    is fp16, fp4 counts as twice fp8 where the card has fp4 units, three times on Blackwell
    Ultra (NVIDIA data sheets: B200 4.5 and 9, B300 4.5 and 14 PFLOPS dense).
    """
    half = card.bf16_dense_tflops or card.fp16_dense_tflops or card.fp32_tflops
    if half is None:
        raise SizingError(f"{card.gpu}: no peak rate is known")
    peak: float = half
    if precision == "fp16" and card.fp16_dense_tflops:
        peak = card.fp16_dense_tflops
    elif precision == "fp32" and card.fp32_tflops:
        peak = card.fp32_tflops
    elif precision in ("fp8", "fp4") and card.fp8_dense_tflops:
        peak = card.fp8_dense_tflops
        if precision == "fp4" and card.fp4_tensor:
            peak *= 3.0 if "ultra" in card.architecture.lower() else 2.0
    elif precision == "int8" and card.int8_dense_tops:
        peak = card.int8_dense_tops
    return peak * 1e12


_TFLOPS_PER_WATT: Final = {
    "pascal": 0.1,
    "volta": 0.45,
    "turing": 0.5,
    "ampere": 0.85,
    "ada": 1.1,
    "hopper": 1.3,
    "blackwell": 1.8,
    "cdna2": 0.7,
    "cdna3": 1.0,
    "cdna4": 1.8,
}
"""What a board sustains per watt in dense 16-bit matrix products, by process generation (16 to
4 nm): between the peak and the board power of the best-cooled card of each. Cards with a low power
limit (L4, T4, H100 PCIe, MI300X) are sold with a peak that it does not let them hold."""


def _power_share(work: Work, card: Card, fit: Constants) -> float:
    """The share of peak that the card's power limit lets it hold, at most 1."""
    watts = work.watts or card.tdp_watts
    per_watt = _TFLOPS_PER_WATT.get(card.generation)
    if not watts or per_watt is None:
        return 0.8
    held = fit.watts * per_watt * watts / (peak_flops(card, "bf16") / 1e12)
    return float(held / (1.0 + held**4) ** 0.25)


def _product_rate(card: Card, precision: str, fit: Constants) -> float:
    """FLOP/s of large matrix products on a chip that holds its peak, without its own efficiency."""
    peak = peak_flops(card, precision)
    if precision == "fp4" and card.fp4_tensor and card.fp8_dense_tflops:
        return peak * fit.fp4
    if precision in ("fp8", "fp4") and card.fp8_dense_tflops:
        return peak * fit.fp8
    if precision == "int8" and card.int8_dense_tops:
        return peak * fit.int8
    return peak


def _traffic_bytes(work: Work, fit: Constants) -> float:
    """Bytes of element-wise passes per token: norms, residuals, rotary, activation, both ways.

    Per layer about 16 passes over the hidden width, 6 over query and key/value, 6 over the FFN
    width, forward and backward together, two bytes each; one third again where recomputed.
    """
    shape = work.shape
    layer = 16 * shape.hidden + 6 * (shape.query + shape.key_value)
    layer += 3 * shape.ffn_matrices * shape.ffn
    if shape.experts > 1:
        layer += 6 * shape.hidden * shape.experts_active
    scale = fit.traffic[work.stack]
    bytes_moved = 2.0 * shape.layers * layer * scale * (1.0 + work.recompute / 3.0)
    if work.adapters_per_layer:
        bytes_moved += (
            fit.adapter_traffic * shape.layers * work.adapters_per_layer * 12.0 * shape.hidden
        )
    if not work.flash:
        heads = shape.query / 128
        bytes_moved += 20.0 * heads * work.attended * shape.layers
    return bytes_moved + fit.logits[work.stack] * shape.vocab


def step_time(work: Work, card: Card, fit: Constants) -> StepTime:
    """GPU-seconds per processed token of one step.

    Raises:
        SizingError: the card has no known peak rate.
    """
    shape = work.shape
    bandwidth = card.mem_bandwidth_gbps * 1e9
    products, scores = flops_per_token(work)
    half = peak_flops(card, "fp16" if work.precision == "fp16" else "bf16")
    program = fit.stack[work.stack] * fit.framework.get(work.framework, 1.0)
    chip = fit.architecture.get(card.architecture_key, 1.0) * _power_share(work, card, fit)
    quality = min(fit.matmul * program * chip, BEST_SHARE)
    tokens_gpu = work.tokens_micro / work.context
    rows = tokens_gpu
    if shape.experts > 1:
        rows = tokens_gpu * work.expert * shape.experts_active / shape.experts
        rows = min(rows, tokens_gpu)
    width = shape.hidden / work.tensor
    rate = _product_rate(card, work.precision, fit) * width / (width + fit.hidden_half)
    moe = fit.moe if shape.experts > 1 else 1.0
    # few rows: the weights' own bytes take longer than their arithmetic
    arithmetic = products / (rate * quality * moe) + fit.ridge * products / (bandwidth * rows)
    if work.stack == "fused":
        kernel = fit.attention_fused
    elif card.architecture_key in ("hopper-hbm", "blackwell-hbm"):
        kernel = fit.attention_hopper
    else:
        kernel = fit.attention
    attention = scores / (half * min(kernel * program * chip, BEST_SHARE))
    traffic = _traffic_bytes(work, fit) / bandwidth
    passes = 2.0 + work.recompute
    dequantise = 0.0
    if work.quant:
        per_param = {"nf4": fit.nf4, "gptq": fit.gptq, "int8": fit.nf4}[work.quant]
        dequantise = passes * shape.params * per_param / bandwidth / tokens_gpu
    launches = (
        (passes + work.trained_share)
        / 3.0
        * shape.layers
        * (fit.layer_seconds[work.stack] + fit.adapter_seconds * work.adapters_per_layer)
        * work.tensor
        / tokens_gpu
    )
    busy = arithmetic + attention + traffic + dequantise
    sharp = fit.launch_overlap
    busy = (busy**sharp + launches**sharp) ** (1.0 / sharp)
    if work.synchronises:
        waits = fit.moe_seconds * shape.layers * work.tensor / tokens_gpu
        busy += waits
        launches += waits
    model_gpus = work.tensor * work.pipeline * work.context
    replicas = max(1.0, work.gpus / model_gpus)
    tokens_step = work.tokens_micro * work.micro_batches * replicas / work.gpus
    shards = replicas if work.shard in ("zero1", "zero2", "zero3") else 1.0
    state = 28.0 * work.trainable_params / (work.tensor * work.pipeline) / shards
    on_host = work.offload and work.trained_share > 0.0
    state_seconds = state / (HOST_MEMORY_GBPS * 1e9 if on_host else bandwidth)
    optimizer = (state_seconds + fit.step_seconds) / tokens_step
    overlapped, exposed = _links(work, card, fit, replicas, tokens_step)
    power = fit.overlap_trainer if work.stack == "trainer" else fit.overlap
    blended = (busy**power + overlapped**power) ** (1.0 / power)
    chunks = fit.interleave if work.pipeline > 1 else 1.0
    bubble = (work.pipeline - 1) / (max(work.micro_batches, 1.0) * chunks)
    if work.pipeline > 1:
        # the stage with the output head works longer, the others wait for it
        head = shape.vocab * shape.hidden / matrix_params(shape)
        bubble += fit.head_exposed * head * (work.pipeline - 1)
    nodes = max(1.0, work.gpus / work.fast_domain)
    slow = 1.0 + fit.straggler * math.log2(nodes)
    if work.plain_network:
        slow *= fit.plain_network
    if work.evaluated:
        slow *= 1.0 + EVALUATION_SHARE * (work.gpus / 8.0) ** EVALUATION_GROWTH
    total = ((blended + exposed) * (1.0 + bubble) + optimizer) * slow
    return StepTime(
        arithmetic,
        attention,
        traffic,
        launches,
        dequantise,
        optimizer,
        overlapped + exposed,
        bubble,
        total,
    )


def _links(
    work: Work, card: Card, fit: Constants, replicas: float, tokens_step: float
) -> tuple[float, float]:
    """GPU-seconds per token of communication: (can overlap, cannot)."""
    shape = work.shape
    link = work.link_gbps * 1e9 * (fit.pcie_share if work.over_pcie else fit.link_share)
    network = work.network_gbps * 1e9 * fit.network_share
    # a collective over whole machines crosses once per machine, over all its adapters
    members = max(1.0, min(work.fast_domain, work.gpus) / work.tensor)
    collective = min(link, network * members)
    spans = work.gpus > work.fast_domain
    model_gpus = work.tensor * work.pipeline * work.context
    params = shape.params / (work.tensor * work.pipeline)
    if work.expert > 1:
        expert_params = (shape.params - shape.params_active) / work.expert
        params = (shape.params_active + expert_params) / (work.tensor * work.pipeline)
    overlapped = 0.0
    if replicas > 1:
        data_link = collective if spans else link
        across = work.shard_gpus * work.tensor > work.fast_domain
        shard_link = collective if across else link
        gradient_bytes = 2.0 * work.trained_share * params
        if work.trained_share < 1.0:
            gradient_bytes += 4.0 * work.trainable_params / (work.tensor * work.pipeline)
        ring = (replicas - 1) / replicas
        overlapped += 2.0 * gradient_bytes * ring / data_link / tokens_step
        if work.shard == "zero3":
            weight_bytes = (0.56 if work.quant in ("nf4", "gptq") else 2.0) * params
            per_micro = work.tokens_micro / model_gpus
            gathers = 2.0 * weight_bytes * (work.shard_gpus - 1) / work.shard_gpus
            overlapped += gathers / shard_link / per_micro
    if work.offload:
        host = card.host_gbps * 1e9 * fit.pcie_share
        weight_bytes = (0.56 if work.quant in ("nf4", "gptq") else 2.0) * params
        overlapped += (
            2.0 * weight_bytes / max(replicas, 1) / host / (work.tokens_micro / model_gpus)
        )
    exposed = 0.0
    if work.tensor > 1:
        tensor_link = network if work.tensor > work.fast_domain else link
        calls = 4.0 + 2.0 * work.recompute
        exposed += (
            fit.tensor_exposed
            * calls
            * shape.layers
            * 4.0
            * shape.hidden
            * (work.tensor - 1)
            / tensor_link
        )
    if work.context > 1:
        ring_link = network if work.tensor * work.context > work.fast_domain else link
        exposed += (
            fit.context_exposed
            * 3.0
            * shape.layers
            * 4.0
            * shape.key_value
            * (work.context - 1)
            / ring_link
        )
    if work.expert > 1:
        expert_link = network if work.expert > work.fast_domain else link
        exposed += (
            fit.expert_exposed
            * 4.0
            * shape.layers
            * 2.0
            * shape.hidden
            * shape.experts_active
            * (work.expert - 1)
            / work.expert
            / expert_link
        )
    return overlapped, exposed


def spread_traits(
    work: Work, card: Card, *, known_program: bool, known_card: bool
) -> dict[str, float]:
    """What makes a prediction more or less certain, each 0 or 1.

    `unknown` a program that no measurement names; `new_card` an architecture that none ran on;
    `unpacked` padded samples of guessed length;
    `pcie` several GPUs without fast links; `mixture` routed experts; `packed_weights` 4- or 8-bit
    weights; `gddr` cards without HBM; `low_precision` fp8 or fp4; `short` micro-batches below 2048
    tokens; `compiled` programs whose speed hangs on the compiler.
    """
    return {
        "base": 1.0,
        "unknown": 0.0 if known_program else 1.0,
        "new_card": 0.0 if known_card else 1.0,
        "unpacked": 1.0 if work.useful < 1.0 else 0.0,
        "pcie": 1.0 if work.over_pcie and work.gpus > 1 else 0.0,
        "mixture": 1.0 if work.shape.experts > 1 else 0.0,
        "packed_weights": 1.0 if work.quant else 0.0,
        "gddr": 1.0 if card.architecture_key.endswith("gddr") else 0.0,
        "low_precision": 1.0 if work.precision in ("fp8", "fp4", "int8") else 0.0,
        "short": 1.0 if work.tokens_micro < 2048 else 0.0,
        "compiled": 1.0 if work.stack == "compiled" else 0.0,
    }


def half_width(work: Work, card: Card, fit: Constants) -> float:
    """Half-width of the 80 % band, in natural log."""
    traits = spread_traits(
        work,
        card,
        known_program=work.framework in fit.framework,
        known_card=card.architecture_key in fit.architecture,
    )
    log_width = sum(fit.spread.get(name, 0.0) * value for name, value in traits.items() if value)
    return math.exp(min(log_width, 0.5))
