"""What the classes of transformers fix for each `model_type`, and what some model rows leave out.

Source: the modelling code of transformers 5 for each type; the models' own configs for `PUBLISHED`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

Norm = Literal["rms", "layer", "bare"]
"""rms: one weight vector; layer: weight and bias; bare: no parameters."""


@dataclass(frozen=True)
class Traits:
    """What the class of a `model_type` fixes and its config does not say.

    Attributes:
        fused_qkv: name of the one projection for q, k and v; empty when they are apart.
        o_name: name of the output projection.
        gated: whether the MLP multiplies two branches (SwiGLU, GeGLU).
        fused_gate_up: whether the two branches are one matrix.
        mlp_names: names of (gate, up, down), or of (up, down) where not gated.
        qkv_bias: biases on q, k and v.
        o_bias: bias on the output projection.
        mlp_bias: biases in the MLP.
        norm: kind of norm.
        norms: norms of width hidden_size per block.
        qk_norm: "head" (one vector of head_dim each for q and k), "full" (their whole width).
        positions: "rope", "learned", "alibi" or "relative".
        position_offset: rows that a learned table has beyond max_position (OPT: 2).
        embed_norm: a norm after the embedding.
        final_norm: a norm before the head.
        head_bias: bias on the output head.
        always_tied: the class ties embedding and head whatever the config says.
        parallel: attention and MLP read the same normed input.
        scale_embeddings: the embedding is multiplied by sqrt(hidden), which makes a copy.
        unit_offset_norm: the norm multiplies by (1 + weight) in fp32, as Gemma does.
        softcap: logits and scores go through tanh (Gemma 2).
        activation: of the MLP.
        conv1d: linears are GPT-2's Conv1D.
        bare_loss: the class computed its loss in compute precision, without a cast to fp32
            (before transformers 4.46).
    """

    fused_qkv: str = ""
    o_name: str = "o_proj"
    gated: bool = True
    fused_gate_up: bool = False
    mlp_names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    norm: Norm = "rms"
    norms: int = 2
    qk_norm: str = ""
    positions: str = "rope"
    position_offset: int = 0
    embed_norm: bool = False
    final_norm: bool = True
    head_bias: bool = False
    always_tied: bool = False
    parallel: bool = False
    scale_embeddings: bool = False
    unit_offset_norm: bool = False
    softcap: bool = False
    activation: str = "silu"
    conv1d: bool = False
    bare_loss: bool = False


_NEOX: Final = Traits(
    fused_qkv="query_key_value",
    o_name="dense",
    gated=False,
    mlp_names=("dense_h_to_4h", "dense_4h_to_h"),
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    norm="layer",
    activation="gelu",
    parallel=True,
)
_GPT2: Final = Traits(
    fused_qkv="c_attn",
    o_name="c_proj",
    gated=False,
    mlp_names=("c_fc", "c_proj"),
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    norm="layer",
    positions="learned",
    always_tied=True,
    activation="gelu_new",
    conv1d=True,
)

TRAITS: Final[dict[str, Traits]] = {
    "llama": Traits(),
    "mistral": Traits(),
    "mixtral": Traits(),
    "granite": Traits(),
    "qwen2": Traits(qkv_bias=True),
    "qwen2_moe": Traits(qkv_bias=True),
    "qwen3": Traits(qk_norm="head"),
    "qwen3_moe": Traits(qk_norm="head"),
    "qwen3_next": Traits(qk_norm="head", unit_offset_norm=True),
    "gemma": Traits(scale_embeddings=True, unit_offset_norm=True, activation="gelu_tanh"),
    "gemma2": Traits(
        norms=4, scale_embeddings=True, unit_offset_norm=True, softcap=True, activation="gelu_tanh"
    ),
    "gemma3_text": Traits(
        norms=4,
        qk_norm="head",
        scale_embeddings=True,
        unit_offset_norm=True,
        activation="gelu_tanh",
    ),
    "phi": Traits(
        o_name="dense",
        gated=False,
        mlp_names=("fc1", "fc2"),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norm="layer",
        norms=1,
        head_bias=True,
        parallel=True,
        activation="gelu_new",
    ),
    "phi3": Traits(
        fused_qkv="qkv_proj", fused_gate_up=True, mlp_names=("gate_up_proj", "down_proj")
    ),
    "falcon": Traits(
        fused_qkv="query_key_value",
        o_name="dense",
        gated=False,
        mlp_names=("dense_h_to_4h", "dense_4h_to_h"),
        norm="layer",
        norms=1,
        parallel=True,
        activation="gelu",
    ),
    "gpt_neox": _NEOX,
    "stablelm": Traits(norm="layer"),
    "olmo": Traits(norm="bare"),
    "olmo2": Traits(qk_norm="full"),
    "olmo3": Traits(qk_norm="full"),
    "starcoder2": Traits(
        gated=False,
        mlp_names=("c_fc", "c_proj"),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norm="layer",
        activation="gelu_tanh",
    ),
    "gpt_bigcode": replace(_GPT2, conv1d=False, activation="gelu_tanh", bare_loss=True),
    "gpt2": _GPT2,
    "gptj": Traits(
        o_name="out_proj",
        gated=False,
        mlp_names=("fc_in", "fc_out"),
        mlp_bias=True,
        norm="layer",
        norms=1,
        head_bias=True,
        parallel=True,
        activation="gelu_new",
    ),
    "opt": Traits(
        o_name="out_proj",
        gated=False,
        mlp_names=("fc1", "fc2"),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norm="layer",
        positions="learned",
        position_offset=2,
        activation="relu",
    ),
    "bloom": replace(_NEOX, positions="alibi", embed_norm=True, always_tied=True, parallel=False),
    "mpt": Traits(
        fused_qkv="Wqkv",
        o_name="out_proj",
        gated=False,
        mlp_names=("up_proj", "down_proj"),
        norm="rms",  # a LayerNorm without bias: one vector
        positions="alibi",
        always_tied=True,
        activation="gelu",
    ),
    "t5": Traits(
        o_name="o", mlp_names=("wi_0", "wi_1", "wo"), positions="relative", activation="gelu_new"
    ),
    "deepseek_v2": Traits(),
    "deepseek_v3": Traits(),
    "gpt_oss": Traits(qkv_bias=True, o_bias=True, mlp_bias=True, activation="clamped_glu"),
    "llama4_text": Traits(),
    "glm4": Traits(
        qkv_bias=True, norms=4, fused_gate_up=True, mlp_names=("gate_up_proj", "down_proj")
    ),
    "glm4_moe": Traits(qkv_bias=True),
    "whisper": Traits(
        o_name="out_proj",
        gated=False,
        mlp_names=("fc1", "fc2"),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norm="layer",
        positions="learned",
        always_tied=True,
        activation="gelu",
    ),
    "vit": Traits(
        o_name="dense",
        gated=False,
        mlp_names=("fc1", "fc2"),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norm="layer",
        positions="learned",
        activation="gelu",
    ),
    "clip": Traits(
        o_name="out_proj",
        gated=False,
        mlp_names=("fc1", "fc2"),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norm="layer",
        positions="learned",
        activation="quick_gelu",
    ),
    "unet2d_condition": Traits(positions="none"),
    "flux_transformer": Traits(positions="none"),
}
"""Traits by `model_type`. A type that is not here is taken as a Llama-like decoder."""

ALIASES: Final = {
    "gemma3": "gemma3_text",
    "mistral3": "mistral",
    "ministral": "mistral",
    "ministral3": "mistral",
    "llama4": "llama4_text",
    "mt5": "t5",
    "phi4": "phi3",
    "chatglm": "qwen2",
    "qwen": "qwen2",
    "baichuan": "llama",
    "internlm2": "llama",
    "minicpm": "llama",
    "yi": "llama",
    "refinedweb": "falcon",
    "refinedwebmodel": "falcon",
}
"""Types whose blocks have the shapes of another."""


PUBLISHED: Final[dict[str, dict[str, Any]]] = {
    "deepseek-ai/DeepSeek-V2-Lite": {
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "first_k_dense_replace": 1,
    },
    "deepseek-ai/DeepSeek-V3": {
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 3,
    },
    "zai-org/GLM-4.5-Air": {"first_k_dense_replace": 1},
    "meta-llama/Llama-4-Maverick-17B-128E": {
        "interleave_moe_layer_step": 2, "intermediate_size_mlp": 16384,
    },
    "tiiuae/falcon-40b": {"num_kv_heads": 8, "new_decoder_architecture": True},
    "stabilityai/stablelm-2-1_6b": {"use_qkv_bias": True},
    # CLIP ViT-L/14 at 336 pixels with its projector: 7,063,427,072 less the language model
    "llava-hf/llava-1.5-7b-hf": {"vision_params": 324_487_168, "patch_size": 14},
}  # fmt: skip
"""What the published config of these models says beyond the columns of a model row."""
