"""Memory of denoisers: the U-Nets of Stable Diffusion 1.5 and XL, and Flux.

Each network is a list of `Part`s, a residual or transformer block at one resolution, with the
channels that autograd keeps of it (the rules of `activations.py` applied to diffusers' modules):

    residual block   two group norms, two SiLUs, two convolutions: 3 (c_in + c_out) channels, of
                     which the inputs of the convolutions only when they train
    transformer      group norm, three layer norms, self and cross attention, GEGLU: 31 channels
                     when it trains, 22 when it is frozen
    Flux, double     two streams of norm, modulation, attention, MLP: 24 widths; frozen 17
    Flux, single     norm, modulation, attention beside MLP: 21 widths; frozen 15

Shapes: diffusers `UNet2DConditionModel` with the configs of both checkpoints (block channels 320,
640, 1280, ...; 2 blocks a stage), `FluxTransformer2DModel` (19 double and 38 single blocks of width
3072). A latent has an eighth of the image's side; Flux packs 2 x 2 latents into a token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from warehouse.sizing.errors import NotSupported
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.setup import DTYPE_BYTES, Setup

GROUP_NORM_COPY: Final = 1.5
"""Autocast runs norms in fp32: what a part keeps grows by half over compute precision."""
FLUX_TEXT_TOKENS: Final = 512
COMPANIONS: Final = {
    # frozen text encoders and autoencoder that stay on the GPU (CLIP ViT-L 123,060,480; OpenCLIP
    # bigG 694,659,840; VAE 83,653,863); Flux runs from embeddings computed before
    "sd1.5": 123_060_480 + 83_653_863,
    "sdxl": 123_060_480 + 694_659_840 + 83_653_863,
    "flux": 83_819_683,
}


@dataclass(frozen=True)
class Part:
    """One block at one resolution.

    Attributes:
        area: its positions as a share of the latent's (or of all tokens for Flux).
        trained: channels kept when it trains.
        frozen: channels kept when only adapters in it train.
        entry: channels of its input: what a checkpoint keeps.
        adapted: sum of (d_in + d_out) over its attention projections.
        inputs: sum of d_in over them: what adapters keep of their inputs.
    """

    area: float
    trained: float
    frozen: float
    entry: float
    adapted: int
    inputs: int


_ENCODER: Final = re.compile(  # "timm/vit_huge_patch14_224.orig_in21k"
    r"vit_(?P<size>tiny|small|base|large|huge)_patch(?P<patch>\d+)_(?P<side>\d+)"
)
_ENCODER_SHAPE: Final = {
    # layers, width, heads: Dosovitskiy et al. 2021, table 1; tiny and small: DeiT
    "tiny": (12, 192, 3), "small": (12, 384, 6), "base": (12, 768, 12), "large": (24, 1024, 16),
    "huge": (32, 1280, 16),
}  # fmt: skip


def encoder_from_name(name: str) -> ModelSpec | None:
    """The vision transformer that a timm name describes; None for another name."""
    found = _ENCODER.search(name.lower())
    if found is None:
        return None
    layers, width, heads = _ENCODER_SHAPE[found["size"]]
    patch, side = int(found["patch"]), int(found["side"])
    return ModelSpec.from_config(
        {
            "model_type": "vit", "hidden_size": width, "num_hidden_layers": layers,
            "num_attention_heads": heads, "intermediate_size": 4 * width, "patch_size": patch,
            "max_position_embeddings": (side // patch) ** 2 + 1,
        },
        name,
    )  # fmt: skip


def kind_of(model: ModelSpec) -> str:
    """Which of the known denoisers a model is, by its size.

    Raises:
        NotSupported: it is none of them.
    """
    if model.model_type == "flux_transformer":
        return "flux"
    if model.model_type == "unet2d_condition":
        return "sdxl" if model.params_total > 1.5e9 else "sd1.5"
    raise NotSupported(f"{model.hf_id}: no rules for images of {model.model_type} are known")


def _residual(area: float, c_in: int, c_out: int) -> Part:
    return Part(area, 3.0 * (c_in + c_out), 2.0 * (c_in + c_out), c_in, 0, 0)


def _transformer(area: float, width: int, context: int, depth: int) -> list[Part]:
    # self attention: four matrices of width; cross attention: two of width, two from the context
    adapted = 4 * 2 * width + 2 * 2 * width + 2 * (context + width)
    return [Part(area, 31.0 * width, 22.0 * width, width, adapted, 6 * width)] * depth


@lru_cache(maxsize=64)
def parts_of(model: ModelSpec) -> tuple[Part, ...]:
    """The blocks of a denoiser in order.

    Raises:
        NotSupported: its shape is not known.
    """
    kind = kind_of(model)
    if kind == "flux":
        width = model.hidden_size
        double = round(model.num_layers / 3)
        single = model.num_layers - double
        # both streams of a double block together see every token once
        return (
            *[Part(1.0, 24.0 * width, 17.0 * width, width, 8 * 2 * width, 4 * width)] * double,
            *[Part(1.0, 21.0 * width, 15.0 * width, width, 3 * 2 * width, 3 * width)] * single,
        )
    channels: tuple[int, ...]
    depths: tuple[int, ...]
    if kind == "sdxl":
        channels, depths, middle, context = (320, 640, 1280), (0, 2, 10), 10, 2048
    else:
        channels, depths, middle, context = (320, 640, 1280, 1280), (1, 1, 1, 0), 1, 768
    parts: list[Part] = []
    skips = [channels[0]]
    width = channels[0]
    for level, (out, depth) in enumerate(zip(channels, depths, strict=True)):
        area = 0.25**level
        for _ in range(2):
            parts.append(_residual(area, width, out))
            parts += _transformer(area, out, context, depth)
            width = out
            skips.append(width)
        if level < len(channels) - 1:
            skips.append(width)  # the convolution that halves the side
    area = 0.25 ** (len(channels) - 1)
    parts.append(_residual(area, width, width))
    parts += _transformer(area, width, context, middle)
    parts.append(_residual(area, width, width))
    for level in reversed(range(len(channels))):
        area = 0.25**level
        for _ in range(3):
            parts.append(_residual(area, width + skips.pop(), channels[level]))
            parts += _transformer(area, channels[level], context, depths[level])
            width = channels[level]
    return tuple(parts)


def positions(model: ModelSpec, setup: Setup) -> float:
    """Latent positions, or tokens of image and text, of one micro-batch."""
    side = setup.image_px or setup.seq_len
    if kind_of(model) == "flux":
        return setup.micro_batch * ((side / 16) ** 2 + FLUX_TEXT_TOKENS)
    return setup.micro_batch * (side / 8) ** 2


def phases(model: ModelSpec, setup: Setup) -> tuple[dict[str, tuple[float, ...]], int]:
    """Bytes by term for each moment of a step, and the trainable parameters.

    The terms are those of `memory.TERMS`, the moments those of `memory.PHASES`.

    Raises:
        NotSupported: no rules for this architecture are known.
    """
    parts = parts_of(model)
    where = positions(model, setup)
    c = DTYPE_BYTES[setup.activation_dtype]
    kept_bytes = c * (GROUP_NORM_COPY if setup.autocast else 1.0)
    full = setup.method == "full"
    weight_bytes = DTYPE_BYTES[setup.weight_dtype]
    denoiser = model.params_total * weight_bytes
    if setup.quant != "none":
        denoiser = model.params_total * 0.58  # 4.5 bits and the unpacked norms and embeddings
    # companions are frozen and held in compute precision
    weights = denoiser + COMPANIONS[kind_of(model)] * c
    if full:
        trainable, trained_bytes = model.params_total, weight_bytes
        adapters = 0.0
    else:
        rank = 1 if setup.method == "ln_tuning" else setup.lora_rank
        trainable = rank * sum(part.adapted for part in parts)
        trained_bytes = DTYPE_BYTES[setup.adapter_dtype]
        adapters = trainable * trained_bytes
    if full and setup.autocast and weight_bytes == 4.0 and setup.grad_checkpointing == "none":
        weights += model.params_total * c  # autocast's copies, kept for the backward pass
    gradients = trainable * trained_bytes
    if setup.optimizer in {"adamw8bit", "paged_adamw8bit"}:
        states = 0.0 if setup.optimizer.startswith("paged") else trainable * 2.03
        step = 0.0
    elif setup.optimizer == "adamw4bit":
        states, step = trainable * 1.06, 0.0
    elif setup.optimizer in {"sgd", "adafactor"}:
        states, step = 0.0, 0.0
    else:
        states = trainable * trained_bytes * 2
        step = trainable * trained_bytes if setup.foreach else 0.0
    shards = setup.shards if setup.sharding in {"fsdp", "zero3"} else 1
    weights, gradients, states, step = (
        x / shards for x in (weights + adapters, gradients, states, step)
    )
    adapter_copy = 0.0 if full else DTYPE_BYTES[setup.adapter_dtype]
    if setup.autocast:
        adapter_copy = 0.0 if full else c

    def kept(part: Part) -> float:
        channels = part.trained if full else part.frozen
        return where * part.area * (channels * kept_bytes + part.inputs * adapter_copy)

    everything = sum(kept(part) for part in parts)
    checkpoints = sum(where * part.area * part.entry * c for part in parts)
    largest = max(kept(part) for part in parts)
    live = largest if setup.grad_checkpointing != "none" else 0.0
    held = checkpoints if setup.grad_checkpointing != "none" else everything
    work = largest / 2
    present = gradients if setup.grad_accum > 1 else 0.0
    gathered = 2 * model.params_total / len(parts) * c if shards > 1 else 0.0
    return {
        "load": (weights, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        "forward_loss": (weights, present, states, held, 0.0, gathered, work),
        "backward": max(
            (weights, present, states, held + live, 0.0, gathered, work),
            (weights, max(present, gradients / 2), states, held / 2 + live, 0.0, gathered, work),
            (weights, gradients, states, live, 0.0, gathered, work),
            key=sum,
        ),
        "optimizer_step": (weights, gradients, states, 0.0, 0.0, 0.0, step),
    }, trainable
