"""What a model is made of: every weight matrix, from which all parameter counts follow.

A `ModelSpec` keeps the few numbers of a `config.json` together with the traits of its
architecture (which matrices are fused, which carry a bias, how many norms a block has). The
counts are exact: `params_total` is what `sum(p.numel() for p in model.parameters())` gives for
the class of the same `model_type` in Hugging Face transformers 5, tied matrices once.

The traits are those of `architectures.py`; where a fact row lacks a field (multi-head latent
attention, dense layers between expert layers) the published config fills it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Literal

from warehouse.sizing.architectures import ALIASES, PUBLISHED, TRAITS, Traits
from warehouse.sizing.errors import SizingError

Role = Literal["attention", "mlp", "expert", "router", "other"]


@dataclass(frozen=True)
class Linear:
    """One weight matrix of a block.

    Attributes:
        name: the module's own name, as LoRA targets it.
        d_in: width of its input.
        d_out: width of its output.
        bias: whether it has a bias of `d_out`.
        copies: how many such matrices a block holds (experts).
        role: what part of the block it belongs to.
        module: whether it is an `nn.Linear` (or Conv1D); a 3-D tensor of stacked experts is not,
            so that neither peft's "all-linear" nor bitsandbytes finds it.
        conv1d: whether it is GPT-2's `Conv1D`, which bitsandbytes leaves alone.
    """

    name: str
    d_in: int
    d_out: int
    bias: bool = False
    copies: int = 1
    role: Role = "mlp"
    module: bool = True
    conv1d: bool = False

    @property
    def weights(self) -> int:
        """Elements of the matrices, without biases."""
        return self.copies * self.d_in * self.d_out

    @property
    def params(self) -> int:
        """Elements with biases."""
        return self.weights + (self.copies * self.d_out if self.bias else 0)


@dataclass(frozen=True)
class Block:
    """One transformer block.

    Attributes:
        linears: its matrices.
        small: parameters that are no matrix of a linear: norms, sinks, convolutions, gates.
        kind: "dense", "moe", "linear" (linear attention), "encoder" or "decoder".
    """

    linears: tuple[Linear, ...]
    small: int
    kind: str = "dense"

    @property
    def params(self) -> int:
        """Elements of the block."""
        return sum(x.params for x in self.linears) + self.small

    @property
    def linear_weights(self) -> int:
        """Elements of its matrices, without biases."""
        return sum(x.weights for x in self.linears)


@dataclass(frozen=True)
class ModelSpec:
    """An architecture, exact to the parameter.

    Attributes:
        hf_id: the name on the Hugging Face hub.
        model_type: as in its `config.json`.
        hidden_size: width of the residual stream.
        num_layers: blocks (of the encoder, where there are both).
        num_heads: query heads.
        num_kv_heads: key/value heads.
        head_dim: width of a head.
        intermediate_size: width of a dense MLP (of the shared expert in Qwen2-MoE).
        vocab_size: rows of the embedding; 0 where there is none.
        tied: whether head and embedding are one tensor.
        max_position: the longest sequence; None when not bounded.
        traits: what the class fixes.
        experts: routed experts in a mixture layer; 0 for a dense model.
        experts_per_token: routed experts that a token visits.
        shared_experts: experts that every token visits.
        moe_intermediate_size: width of one expert.
        shared_intermediate_size: width of all shared experts together.
        dense_layers: blocks that are dense although the model has experts.
        dense_intermediate_size: MLP width of those blocks.
        q_lora_rank: low-rank query of multi-head latent attention; 0 for none.
        kv_lora_rank: latent key/value width; 0 for ordinary attention.
        qk_rope_head_dim: rotary part of a latent head.
        v_head_dim: value width of a latent head.
        linear_layers: blocks with linear attention instead (Qwen3-Next).
        decoder_layers: blocks of the decoder where `num_layers` are the encoder's; else 0.
        patch_size: side of an image patch in pixels; 0 where there is no vision.
        vision_params: parameters of towers beside the text model (frozen unless said).
        params_stated: a count for architectures that are not built of these blocks.
        dtype: the checkpoint's own dtype, as in its config.
    """

    hf_id: str
    model_type: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied: bool
    max_position: int | None = None
    traits: Traits = field(default_factory=Traits)
    experts: int = 0
    experts_per_token: int = 0
    shared_experts: int = 0
    moe_intermediate_size: int = 0
    shared_intermediate_size: int = 0
    dense_layers: int = 0
    dense_intermediate_size: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    linear_layers: int = 0
    decoder_layers: int = 0
    patch_size: int = 0
    vision_params: int = 0
    params_stated: int = 0
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        """Refuse sizes that no model has.

        Raises:
            SizingError: a size is not positive, or heads do not share keys evenly.
        """
        for name in ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise SizingError(f"{self.hf_id}: {name} is {getattr(self, name)}, not positive")
        if self.num_heads % self.num_kv_heads:
            raise SizingError(
                f"{self.hf_id}: {self.num_heads} heads cannot share "
                f"{self.num_kv_heads} key/value heads evenly"
            )
        if self.experts and not 0 < self.experts_per_token <= self.experts:
            raise SizingError(
                f"{self.hf_id}: {self.experts_per_token} of {self.experts} experts per token"
            )
        object.__setattr__(
            self,
            "_hash",
            hash((self.hf_id, self.model_type, self.hidden_size, self.num_layers,
                  self.vocab_size, self.intermediate_size, self.tied)),
        )  # fmt: skip

    def __hash__(self) -> int:
        """The hash, computed once: a spec is the key of every cache in this folder."""
        return self._hash  # type: ignore[attr-defined, no-any-return]

    # --- widths -------------------------------------------------------------------------------

    @property
    def q_dim(self) -> int:
        """Width of all query heads."""
        return self.num_heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        """Width of all key (or value) heads."""
        return self.num_kv_heads * self.head_dim

    @property
    def is_moe(self) -> bool:
        """Whether some block routes tokens to experts."""
        return self.experts > 0

    @property
    def is_text(self) -> bool:
        """Whether it is a decoder (or encoder-decoder) over a vocabulary."""
        return self.vocab_size > 0 and self.model_type not in {"clip", "whisper"}

    @property
    def is_diffusion(self) -> bool:
        """Whether it is a denoiser over latents."""
        return self.model_type in {"unet2d_condition", "flux_transformer"}

    # --- parts --------------------------------------------------------------------------------

    @property
    def blocks(self) -> tuple[tuple[Block, int], ...]:
        """Each kind of block with how often it occurs."""
        return build_blocks(self)

    @property
    def embedding_params(self) -> int:
        """Elements of the token embedding."""
        return self.vocab_size * self.hidden_size

    @property
    def head_params(self) -> int:
        """Elements of the output head; 0 where it is the embedding."""
        if not self.vocab_size or self.tied:
            return 0
        bias = self.vocab_size if self.traits.head_bias else 0
        return self.vocab_size * self.hidden_size + bias

    @property
    def outer_params(self) -> int:
        """Elements outside the blocks and the two vocabulary matrices: positions, last norm."""
        return _outer_params(self)

    @property
    def params_total(self) -> int:
        """Every parameter once."""
        if self.params_stated:
            return self.params_stated
        inside = sum(block.params * count for block, count in self.blocks)
        return inside + self.embedding_params + self.head_params + self.outer_params

    @property
    def params_active(self) -> int:
        """Parameters that one token meets: all but the experts that it skips."""
        skipped = 0
        for block, count in self.blocks:
            for x in block.linears:
                if x.role == "expert":
                    skipped += count * x.params // x.copies * (x.copies - self.experts_per_token)
        return self.params_total - skipped

    @property
    def linear_params(self) -> int:
        """Elements of all block matrices, without biases: what a 4-bit loader can pack."""
        return sum(block.linear_weights * count for block, count in self.blocks)

    def linears(self) -> tuple[tuple[Linear, int], ...]:
        """Every matrix of the blocks with how many blocks have it."""
        return tuple((x, count) for block, count in self.blocks for x in block.linears)

    # --- reading ------------------------------------------------------------------------------

    @classmethod
    def from_row(cls, row: Mapping[str, str | None]) -> ModelSpec:
        """Read one row of the models table (columns as in the seed `models.csv`).

        Raises:
            SizingError: a needed column is missing or no number.
        """
        hf_id = (row.get("hf_id") or "").strip()
        model_type = (row.get("model_type") or "").strip()
        if not hf_id or not model_type:
            raise SizingError("a model row needs hf_id and model_type")
        if model_type in {"unet2d_condition", "flux_transformer"}:
            return cls(
                hf_id=hf_id,
                model_type=model_type,
                hidden_size=_number(row, "hidden_size", hf_id),
                num_layers=57 if model_type == "flux_transformer" else 1,
                num_heads=_number(row, "num_attention_heads", hf_id, 8),
                num_kv_heads=_number(row, "num_attention_heads", hf_id, 8),
                head_dim=_number(row, "head_dim", hf_id, 64),
                intermediate_size=0,
                vocab_size=0,
                tied=False,
                traits=TRAITS[model_type],
                params_stated=_number(row, "params_total", hf_id),
                dtype=row.get("torch_dtype") or "float32",
            )
        heads = _number(row, "num_attention_heads", hf_id)
        hidden = _number(row, "hidden_size", hf_id)
        config: dict[str, Any] = {
            "model_type": model_type,
            "hidden_size": hidden,
            "num_hidden_layers": _number(row, "num_hidden_layers", hf_id),
            "num_attention_heads": heads,
            "num_key_value_heads": _number(row, "num_key_value_heads", hf_id, heads),
            "head_dim": _number(row, "head_dim", hf_id, hidden // max(heads, 1)),
            "intermediate_size": _number(row, "intermediate_size", hf_id),
            "vocab_size": _number(row, "vocab_size", hf_id, 0),
            "tie_word_embeddings": row.get("tie_word_embeddings") == "true",
            "torch_dtype": row.get("torch_dtype") or "bfloat16",
        }
        for column, key in (
            ("moe_intermediate_size", "moe_intermediate_size"),
            ("num_experts", "num_experts"),
            ("experts_per_token", "num_experts_per_tok"),
            ("n_shared_experts", "n_shared_experts"),
            ("max_position", "max_position_embeddings"),
        ):
            if row.get(column):
                config[key] = _number(row, column, hf_id)
        config |= PUBLISHED.get(hf_id, {})
        spec = cls.from_config(config, hf_id)
        if model_type == "clip":  # the columns hold the vision tower alone, the count both
            spec = replace(spec, params_stated=_number(row, "params_total", hf_id))
        return spec

    @classmethod
    def from_config(cls, config: Mapping[str, Any], hf_id: str = "config") -> ModelSpec:
        """Read a Hugging Face `config.json`, also one that nests its text model.

        Args:
            config: the parsed file.
            hf_id: a name for messages.

        Raises:
            SizingError: a size that every transformer has is missing or absurd.
        """
        try:
            return _spec_from_config(config, hf_id)
        except SizingError as error:
            text = str(error)
            raise SizingError(text if text.startswith(hf_id) else f"{hf_id}: {text}") from None


def _number(
    row: Mapping[str, str | None], column: str, hf_id: str, default: int | None = None
) -> int:
    text = (row.get(column) or "").strip()
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise SizingError(f"{hf_id}: {column} is {text!r}, not a number") from None
    try:
        return _checked(column, value)
    except SizingError as error:
        raise SizingError(f"{hf_id}: {error}") from None


LARGEST: Final = 1e12
"""No size of a model is larger."""
_KEYS: Final = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "n_embed", "hidden_dim", "dim"),
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    "num_heads": (
        "num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"
    ),
    "intermediate_size": (
        "intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size", "encoder_ffn_dim"
    ),
    "vocab_size": ("padded_vocab_size", "vocab_size"),
    "max_position": (
        "max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len",
        "max_target_positions", "max_sequence_length",
    ),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": (
        "num_experts_per_tok", "num_experts_per_token", "moe_k", "experts_per_token", "top_k"
    ),
    "moe_intermediate_size": ("moe_intermediate_size", "moe_ffn_hidden_size"),
}  # fmt: skip


def _pick(config: Mapping[str, Any], name: str) -> int | None:
    """The first of the keys under which configs store a size."""
    for key in _KEYS[name]:
        value = config.get(key)
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, (list, tuple)):  # per-layer lists (OpenELM, Gemma 3n): the widest
            value = max(value, default=None)
            if value is None:
                continue
        if name == "max_position" and value == -1:  # no limit of its own (Mamba, XLNet)
            continue
        return _checked(key, value)
    return None


def _checked(key: str, value: object) -> int:
    """A value as a whole number of a size that a model can have."""
    if isinstance(value, (int, float)) and 0 <= value < LARGEST and value == int(value):
        return int(value)
    raise SizingError(f"{key} is {value!r}, not a whole number of at least 0")


def _whole(config: Mapping[str, Any], key: str, default: int) -> int:
    """A whole number of a config; the default where it is absent, null, zero or false."""
    value = config.get(key)
    return _checked(key, value) if value else default


def _spec_from_config(config: Mapping[str, Any], hf_id: str) -> ModelSpec:
    if not isinstance(config, Mapping):
        raise SizingError(f"a config is a JSON object, not {type(config).__name__}")
    for nested in ("text_config", "llm_config", "language_config", "thinker_config"):
        inner = config.get(nested)
        if isinstance(inner, Mapping) and inner:
            merged = {
                "tie_word_embeddings": config.get("tie_word_embeddings"),
                "torch_dtype": config.get("torch_dtype") or config.get("dtype"),
            }
            merged = {k: v for k, v in merged.items() if v is not None} | dict(inner)
            vision = config.get("vision_config")
            spec = _spec_from_config(merged, hf_id)
            if not isinstance(vision, Mapping):
                return spec
            return replace(
                spec,
                vision_params=_tower_params(vision),
                patch_size=_whole(vision, "patch_size", 14),
            )
    model_type = str(config.get("model_type") or "llama").lower()
    model_type = ALIASES.get(model_type, model_type)
    traits = TRAITS.get(model_type, TRAITS["llama"])
    hidden = _pick(config, "hidden_size")
    layers = _pick(config, "num_layers")
    heads = _pick(config, "num_heads")
    inter = _pick(config, "intermediate_size")
    vocab = _pick(config, "vocab_size")
    experts = _pick(config, "experts") or 0
    per_token = _pick(config, "experts_per_token") or 0
    moe_inter = _pick(config, "moe_intermediate_size")
    max_position = _pick(config, "max_position")
    for name, value in (("hidden_size", hidden), ("num_hidden_layers", layers),
                        ("num_attention_heads", heads)):  # fmt: skip
        if value is None or value < 1:
            raise SizingError(f"the config has no {name}")
    assert hidden is not None
    assert layers is not None
    assert heads is not None
    head_dim = config.get("head_dim") or config.get("d_kv") or hidden // heads
    if not isinstance(head_dim, int) or head_dim < 1:
        raise SizingError(f"head_dim is {head_dim!r}, not a positive whole number")
    if model_type == "mpt" and isinstance(config.get("expansion_ratio"), int):
        inter = inter or hidden * _whole(config, "expansion_ratio", 4)
    inter = inter or 4 * hidden
    vocab = vocab or 0
    kv_heads = _kv_heads(config, model_type, heads)
    traits = _traits_from(config, model_type, traits)
    tied = config.get("tie_word_embeddings")
    if tied is None:  # what the config class of each type defaults to
        tied = model_type in {
            "gemma", "gemma2", "gemma3_text", "opt", "falcon", "starcoder2", "t5"
        }  # fmt: skip
    if traits.always_tied:
        tied = True
    is_moe_type = experts > 1
    moe_width = moe_inter or inter
    shared = _whole(config, "n_shared_experts", 0)
    shared_width = _whole(config, "shared_expert_intermediate_size", 0)
    if is_moe_type:
        if model_type == "qwen2_moe":
            shared_width = shared_width or inter
        elif model_type == "qwen3_next":
            shared_width = shared_width or moe_width
        elif model_type == "llama4_text":
            shared_width = inter
        elif shared:
            shared_width = shared * moe_width
    dense_layers, dense_width = _dense_layers(config, layers, inter)
    latent = _whole(config, "kv_lora_rank", 0)
    rope_dim = _whole(config, "qk_rope_head_dim", 0)
    if latent:
        head_dim = _whole(config, "qk_nope_head_dim", 128) + rope_dim
        kv_heads = heads
    decoder_layers = 0
    if model_type in {"t5", "whisper"}:
        decoder_layers = _whole(
            config, "num_decoder_layers", _whole(config, "decoder_layers", layers)
        )
    linear_layers = 0
    kinds = config.get("layer_types")
    if model_type == "qwen3_next" or (isinstance(kinds, list) and "linear_attention" in kinds):
        if isinstance(kinds, list) and len(kinds) == layers:
            linear_layers = sum(1 for kind in kinds if kind == "linear_attention")
        else:
            every = max(1, _whole(config, "full_attention_interval", 4))
            linear_layers = layers - layers // every
    if model_type == "vit":
        vocab = 0
    return ModelSpec(
        hf_id=hf_id,
        model_type=model_type,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=inter,
        vocab_size=vocab,
        tied=bool(tied),
        max_position=max_position,
        traits=traits,
        experts=experts if is_moe_type else 0,
        experts_per_token=(per_token or 1) if is_moe_type else 0,
        shared_experts=max(shared, 1 if shared_width else 0) if is_moe_type else 0,
        moe_intermediate_size=moe_width if is_moe_type else 0,
        shared_intermediate_size=shared_width if is_moe_type else 0,
        dense_layers=dense_layers if is_moe_type else 0,
        dense_intermediate_size=dense_width if is_moe_type else 0,
        q_lora_rank=_whole(config, "q_lora_rank", 0) if latent else 0,
        kv_lora_rank=latent,
        qk_rope_head_dim=rope_dim,
        v_head_dim=_whole(config, "v_head_dim", head_dim) if latent else head_dim,
        linear_layers=linear_layers,
        decoder_layers=decoder_layers,
        patch_size=_patch_size(config, model_type),
        vision_params=_whole(config, "vision_params", 0),
        dtype=str(config.get("torch_dtype") or config.get("dtype") or "bfloat16"),
    )


def _patch_size(config: Mapping[str, Any], model_type: str) -> int:
    """Side of a patch: as configured, else 16 for ViT and 14 for CLIP, their usual sizes."""
    usual = {"vit": 16, "clip": 14}.get(model_type, 0)
    value = config.get("patch_size")
    return value if isinstance(value, int) and value > 0 else usual


def _kv_heads(config: Mapping[str, Any], model_type: str, heads: int) -> int:
    """Key/value heads under the names that configs use; all heads where none is given."""
    if model_type == "falcon":
        if config.get("new_decoder_architecture"):
            return _whole(config, "num_kv_heads", 8)
        return 1 if config.get("multi_query", True) else heads
    if model_type == "gpt_bigcode":
        return 1 if config.get("multi_query", True) else heads
    if config.get("multi_query_attention") and config.get("multi_query_group_num"):
        return _whole(config, "multi_query_group_num", heads)  # ChatGLM
    value = config.get("num_key_value_heads") or config.get("num_kv_heads")
    return int(value) if isinstance(value, int) and value > 0 else heads


def _traits_from(config: Mapping[str, Any], model_type: str, traits: Traits) -> Traits:
    """Let the config's own switches override what its type usually has."""
    if model_type == "falcon":
        if config.get("new_decoder_architecture"):
            traits = replace(traits, norms=2)
        elif config.get("parallel_attn") is False:
            traits = replace(traits, norms=2, parallel=False)
        if config.get("bias"):
            traits = replace(traits, qkv_bias=True, o_bias=True, mlp_bias=True)
    if model_type == "stablelm" and config.get("use_qkv_bias"):
        traits = replace(traits, qkv_bias=True)
    bias = config.get("attention_bias")
    if isinstance(bias, bool) and model_type in {
        "llama", "qwen3", "qwen3_moe", "granite", "olmo", "olmo2", "gemma", "gemma2",
        "gemma3_text", "glm4", "glm4_moe",
    }:  # fmt: skip
        with_output = model_type not in {"glm4", "glm4_moe"}
        traits = replace(traits, qkv_bias=bias, o_bias=bias and with_output)
    if isinstance(config.get("mlp_bias"), bool):
        traits = replace(traits, mlp_bias=config["mlp_bias"])
    if model_type not in TRAITS and config.get("use_qk_norm"):
        traits = replace(traits, qk_norm="head")
    if model_type == "glm4_moe" and config.get("use_qk_norm"):
        traits = replace(traits, qk_norm="head")
    if model_type == "starcoder2" and config.get("use_bias") is False:
        traits = replace(traits, qkv_bias=False, o_bias=False, mlp_bias=False)
    if model_type == "t5" and "gated" not in str(config.get("feed_forward_proj", "gated-gelu")):
        traits = replace(traits, gated=False, mlp_names=("wi", "wo"), activation="relu")
    if model_type == "gpt_neox" and config.get("use_parallel_residual") is False:
        traits = replace(traits, parallel=False)
    return traits


def _dense_layers(config: Mapping[str, Any], layers: int, inter: int) -> tuple[int, int]:
    """How many blocks of a mixture model are dense, and how wide their MLP is."""
    first = _whole(config, "first_k_dense_replace", 0)
    if first:
        return min(first, layers), inter
    step = _whole(config, "interleave_moe_layer_step", 1)
    if step > 1:
        return layers - layers // step, _whole(config, "intermediate_size_mlp", inter)
    only = config.get("mlp_only_layers")
    if isinstance(only, list) and only:
        return len(only), inter
    return 0, inter


def _tower_params(vision: Mapping[str, Any]) -> int:
    """Parameters of a ViT-like vision tower, its projector left out.

    Blocks of 4 h^2 + 2 h i with biases and two norms; patch, class and position embeddings.
    """
    try:
        hidden = _pick(vision, "hidden_size") or 0
        layers = _pick(vision, "num_layers") or _whole(vision, "depth", 0)
        inter = _pick(vision, "intermediate_size") or 4 * hidden
    except SizingError:
        return 0
    patch = _whole(vision, "patch_size", 14)
    image = _whole(vision, "image_size", 336)
    channels = _whole(vision, "num_channels", 3)
    positions = (image // patch) ** 2 + 1
    block = 4 * hidden * (hidden + 1) + inter * (hidden + 1) + hidden * (inter + 1) + 4 * hidden
    return layers * block + channels * patch**2 * hidden + (positions + 5) * hidden


# --- blocks -----------------------------------------------------------------------------------


def _norm_width(traits: Traits) -> int:
    """Vectors that one norm holds."""
    return {"rms": 1, "layer": 2, "bare": 0}[traits.norm]


def _attention(spec: ModelSpec) -> tuple[list[Linear], int]:
    """Matrices of ordinary or latent attention, and its small parameters."""
    t, h = spec.traits, spec.hidden_size
    small = 0
    if spec.kv_lora_rank:  # multi-head latent attention, DeepSeek-V2 section 2.1
        linears = []
        q_out = spec.num_heads * spec.head_dim
        nope = spec.head_dim - spec.qk_rope_head_dim
        if spec.q_lora_rank:
            linears += [
                Linear("q_a_proj", h, spec.q_lora_rank, role="attention"),
                Linear("q_b_proj", spec.q_lora_rank, q_out, role="attention"),
            ]
            small += spec.q_lora_rank
        else:
            linears.append(Linear("q_proj", h, q_out, role="attention"))
        latent = spec.kv_lora_rank
        linears += [
            Linear("kv_a_proj_with_mqa", h, latent + spec.qk_rope_head_dim, role="attention"),
            Linear(
                "kv_b_proj", latent, spec.num_heads * (nope + spec.v_head_dim), role="attention"
            ),
            Linear("o_proj", spec.num_heads * spec.v_head_dim, h, role="attention"),
        ]
        return linears, small + latent
    q, kv = spec.q_dim, spec.kv_dim
    if t.fused_qkv:
        linears = [
            Linear(t.fused_qkv, h, q + 2 * kv, t.qkv_bias, role="attention", conv1d=t.conv1d)
        ]
    else:
        # Qwen3-Next's query carries an output gate of the same width.
        wide = 2 if spec.model_type == "qwen3_next" else 1
        key_bias = t.qkv_bias and spec.model_type != "whisper"
        linears = [
            Linear("q_proj", h, q * wide, t.qkv_bias, role="attention"),
            Linear("k_proj", h, kv, key_bias, role="attention"),
            Linear("v_proj", h, kv, t.qkv_bias, role="attention"),
        ]
    linears.append(Linear(t.o_name, q, h, t.o_bias, role="attention", conv1d=t.conv1d))
    if t.qk_norm == "head":
        small += 2 * spec.head_dim
    elif t.qk_norm == "full":
        small += q + kv
    if spec.model_type == "gpt_oss":
        small += spec.num_heads  # one learned sink per head
    return linears, small


def _mlp(spec: ModelSpec, width: int, prefix: str = "", role: Role = "mlp") -> list[Linear]:
    """A dense MLP of a given width."""
    t, h = spec.traits, spec.hidden_size
    names = tuple(prefix + name for name in t.mlp_names)
    if t.gated and not t.fused_gate_up:
        return [
            Linear(names[0], h, width, t.mlp_bias, role=role),
            Linear(names[1], h, width, t.mlp_bias, role=role),
            Linear(names[2], width, h, t.mlp_bias, role=role),
        ]
    up = 2 * width if t.gated else width
    return [
        Linear(names[0], h, up, t.mlp_bias, role=role, conv1d=t.conv1d),
        Linear(names[1], width, h, t.mlp_bias, role=role, conv1d=t.conv1d),
    ]


def _mixture(spec: ModelSpec) -> tuple[list[Linear], int]:
    """Router, stacked experts and shared experts of a mixture layer."""
    h, width, n = spec.hidden_size, spec.moe_intermediate_size, spec.experts
    router_bias = spec.model_type == "gpt_oss"
    bias = spec.model_type == "gpt_oss"
    linears = [
        Linear("gate", h, n, router_bias, role="router", module=False),
        Linear("experts.gate_up_proj", h, 2 * width, bias, n, "expert", module=False),
        Linear("experts.down_proj", width, h, bias, n, "expert", module=False),
    ]
    small = 0
    if spec.shared_intermediate_size:
        shared = replace(spec.traits, fused_gate_up=False)
        names = ("gate_proj", "up_proj", "down_proj")
        linears += _mlp(
            replace(spec, traits=replace(shared, mlp_names=names)), spec.shared_intermediate_size
        )
        if spec.model_type in {"qwen2_moe", "qwen3_next"}:
            linears.append(Linear("shared_expert_gate", h, 1, role="router"))
    return linears, small


def _linear_attention(spec: ModelSpec) -> tuple[list[Linear], int]:
    """Gated delta-net of Qwen3-Next: 16 key heads, 32 value heads of width 128, kernel 4."""
    h, key, value, kernel, heads, width = spec.hidden_size, 2048, 4096, 4, 32, 128
    linears = [
        Linear("in_proj_qkvz", h, 2 * key + 2 * value, role="attention"),
        Linear("in_proj_ba", h, 2 * heads, role="attention"),
        Linear("out_proj", value, h, role="attention"),
    ]
    return linears, (2 * key + value) * kernel + 2 * heads + width


@lru_cache(maxsize=1024)
def build_blocks(spec: ModelSpec) -> tuple[tuple[Block, int], ...]:
    """Every kind of block with how often it occurs."""
    if spec.is_diffusion:
        return ()
    attention, small = _attention(spec)
    t, h = spec.traits, spec.hidden_size
    norm = _norm_width(t) * h
    small += t.norms * norm
    if spec.decoder_layers:
        mlp = _mlp(spec, spec.intermediate_size)
        encoder = Block((*attention, *mlp), small, "encoder")
        cross = tuple(replace(x, name=f"cross.{x.name}") for x in attention)
        decoder = Block((*attention, *cross, *mlp), small + norm, "decoder")
        return ((encoder, spec.num_layers), (decoder, spec.decoder_layers))
    if not spec.experts:
        return ((Block((*attention, *_mlp(spec, spec.intermediate_size)), small), spec.num_layers),)
    mixture, extra = _mixture(spec)
    parts: list[tuple[Block, int]] = []
    if spec.dense_layers:
        dense = _mlp(spec, spec.dense_intermediate_size)
        parts.append((Block((*attention, *dense), small), spec.dense_layers))
    full = spec.num_layers - spec.dense_layers - spec.linear_layers
    parts.append((Block((*attention, *mixture), small + extra, "moe"), full))
    if spec.linear_layers:
        linear, linear_small = _linear_attention(spec)
        small = linear_small + t.norms * norm
        parts.append((Block((*linear, *mixture), small + extra, "linear"), spec.linear_layers))
    return tuple((block, count) for block, count in parts if count > 0)


@lru_cache(maxsize=1024)
def _outer_params(spec: ModelSpec) -> int:
    """Positions, embedding norms, the last norm, and what an encoder or a tower adds."""
    t, h = spec.traits, spec.hidden_size
    norm = _norm_width(t) * h
    if spec.model_type == "vit":
        # class token, positions, 16x16 RGB patches with bias, last norm, a head of 1,000 classes
        positions = spec.max_position or 197
        return h + positions * h + 3 * 16 * 16 * h + h + norm + 1000 * (h + 1)
    if spec.model_type == "whisper":
        # two convolutions of kernel 3 over 128 mel bands, 1,500 + max_position positions
        conv = 128 * 3 * h + h + 3 * h * h + h
        return conv + (1500 + (spec.max_position or 448)) * h + 2 * norm
    total = norm if t.final_norm else 0
    if spec.decoder_layers:
        total += norm + 2 * 32 * spec.num_heads  # both last norms; 32 relative buckets each
    if t.embed_norm:
        total += norm
    if t.positions == "learned":
        total += ((spec.max_position or 0) + t.position_offset) * h
    return total
