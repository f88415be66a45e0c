"""Parameter counts are exact, and configs of every shape are read or refused in one line."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evidence import ROOT, SHARED, needs_evidence
from warehouse.sizing.errors import SizingError
from warehouse.sizing.model import ModelSpec

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 128256, "tie_word_embeddings": False, "max_position_embeddings": 131072,
}  # fmt: skip


def counts(path: Path) -> list[tuple[str, int, int]]:
    """Name, computed and stated count of every row of a models table."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        (row["hf_id"], ModelSpec.from_row(row).params_total, int(row["params_total"]))
        for row in rows
    ]


def test_llama_by_hand() -> None:
    # per block: q and o 4096^2 each, k and v 4096 x 1024 each, three MLP matrices, two norms
    block = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    whole = 32 * block + 2 * 128256 * 4096 + 4096
    spec = ModelSpec.from_config(LLAMA)
    assert spec.params_total == whole == 8_030_261_248
    assert spec.embedding_params == spec.head_params == 128256 * 4096


def test_tied_head_counts_once() -> None:
    apart = ModelSpec.from_config(LLAMA)
    tied = ModelSpec.from_config(LLAMA | {"tie_word_embeddings": True})
    assert apart.params_total - tied.params_total == 128256 * 4096
    assert tied.head_params == 0


def test_gpt2_by_hand() -> None:
    # tokens 50257 x 768, positions 1024 x 768, 12 blocks with biases, two norms each, a last norm
    h = 768
    block = (h * 3 * h + 3 * h) + (h * h + h) + (h * 4 * h + 4 * h) + (4 * h * h + h) + 4 * h
    whole = 50257 * h + 1024 * h + 12 * block + 2 * h
    spec = ModelSpec.from_config({
        "model_type": "gpt2", "n_embd": h, "n_layer": 12, "n_head": 12, "vocab_size": 50257,
        "n_positions": 1024,
    })  # fmt: skip
    assert spec.params_total == whole == 124_439_808


def test_mixture_counts_all_experts_and_few_active() -> None:
    # Mixtral-8x7B, Jiang et al. 2024: 46.7 B in total, 12.9 B per token
    spec = ModelSpec.from_config({
        "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
        "tie_word_embeddings": False,
    })  # fmt: skip
    assert spec.params_total == 46_702_792_704
    assert spec.params_active == 12_879_925_248


def test_nested_text_config_with_a_vision_tower() -> None:
    config = {
        "model_type": "llava",
        "text_config": LLAMA,
        "vision_config": {
            "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096,
            "patch_size": 14, "image_size": 336,
        },
    }  # fmt: skip
    spec = ModelSpec.from_config(config, "some/vlm")
    assert spec.params_total == 8_030_261_248
    assert spec.vision_params == pytest.approx(303.5e6, rel=0.002)  # CLIP ViT-L/14-336
    assert spec.patch_size == 14


def test_unknown_type_is_read_as_a_llama_like_decoder() -> None:
    spec = ModelSpec.from_config(LLAMA | {"model_type": "brand_new"})
    assert spec.params_total == 8_030_261_248


def test_every_seed_row_is_exact() -> None:
    wrong = [x for x in counts(ROOT / "warehouse" / "seeds" / "models.csv") if x[1] != x[2]]
    assert wrong == []


@needs_evidence
def test_every_shared_row_is_exact() -> None:
    found = counts(SHARED / "facts" / "models.csv")
    assert len(found) > 100
    assert [x for x in found if x[1] != x[2]] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "no hidden_size"),
        ({"num_hidden_layers": 0}, "no num_hidden_layers"),
        ({"num_attention_heads": None}, "no num_attention_heads"),
        ({"hidden_size": "wide"}, "not a whole number"),
        ({"intermediate_size": -8}, "not a whole number of at least 0"),
        ({"vocab_size": -8}, "not a whole number of at least 0"),
        ({"num_key_value_heads": 5}, "cannot share"),
        ({"head_dim": -1}, "head_dim"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "experts per token"),
    ],
)
def test_a_bad_config_is_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SizingError, match=words) as caught:
        ModelSpec.from_config(LLAMA | change, "some/model")
    assert "\n" not in str(caught.value)
    assert "some/model" in str(caught.value)


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"hf_id": "a/b"},
        {"hf_id": "a/b", "model_type": "llama", "hidden_size": "", "num_attention_heads": "8"},
        {"hf_id": "a/b", "model_type": "llama", "hidden_size": "many", "num_attention_heads": "8"},
        {"hf_id": "a/b", "model_type": "llama", "hidden_size": "inf", "num_attention_heads": "8"},
        {"hf_id": "a/b", "model_type": "llama", "hidden_size": "-64", "num_attention_heads": "8"},
        {
            "hf_id": "a/b",
            "model_type": "llama",
            "hidden_size": "64",
            "num_attention_heads": "0",
            "num_hidden_layers": "1",
            "intermediate_size": "9",
        },
    ],
)
def test_a_bad_row_is_refused_in_one_line(row: dict[str, str]) -> None:
    with pytest.raises(SizingError) as caught:
        ModelSpec.from_row(row)
    assert "\n" not in str(caught.value)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 300), st.floats(), st.text(max_size=5),
    st.lists(st.integers(0, 9), max_size=3), st.sampled_from([2**70, {}, ["linear_attention"]]),
)  # fmt: skip
KEYS = sorted({
    *LLAMA, "head_dim", "num_experts", "num_experts_per_tok", "n_shared_experts", "kv_lora_rank",
    "qk_rope_head_dim", "layer_types", "full_attention_interval", "first_k_dense_replace",
    "interleave_moe_layer_step", "mlp_only_layers", "text_config", "vision_config",
    "attention_bias", "multi_query_group_num", "multi_query_attention", "num_decoder_layers",
    "torch_dtype",
})  # fmt: skip
TYPES = st.sampled_from(["llama", "qwen3_next", "mixtral", "deepseek_v3", "t5", "falcon", "vit"])


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES), TYPES)
def test_any_config_is_read_or_refused(change: dict[str, Any], model_type: str) -> None:
    refusal = ""
    try:
        spec = ModelSpec.from_config(LLAMA | {"model_type": model_type} | change, "some/model")
    except SizingError as error:
        refusal = str(error)
    if refusal:
        assert refusal.startswith("some/model")
        assert "\n" not in refusal
    else:
        assert 0 < spec.params_active <= spec.params_total


def test_a_config_must_be_an_object() -> None:
    with pytest.raises(SizingError, match="JSON object"):
        ModelSpec.from_config(["llama"])  # type: ignore[arg-type]
