"""Rows in, predictions out: every column as it comes, bad rows beside good ones, fast enough."""

from __future__ import annotations

import csv
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evidence import ROOT
from warehouse.sizing.bulk import OUTPUT, approximate, size_rows
from warehouse.sizing.errors import UnknownModel
from warehouse.sizing.memory import TERMS
from warehouse.sizing.model import ModelSpec

with (ROOT / "warehouse" / "seeds" / "models.csv").open(newline="", encoding="utf-8") as seed:
    MODELS = {row["hf_id"]: ModelSpec.from_row(row) for row in csv.DictReader(seed)}

TRACE = {
    "model": "meta-llama/Llama-3.2-1B", "method": "lora", "weight_dtype": "bf16",
    "adapter_dtype": "fp32", "lora_rank": "16", "lora_targets": "q_proj|v_proj",
    "optimizer": "adamw", "grad_checkpointing": "True", "attention": "flash", "seq_len": "700",
    "micro_batch": "3", "params": "1235814400", "trainable": "851968", "weights_gib": "",
    "states_gib": "", "peak_gib": "1.0",
}  # fmt: skip
RUN = {
    "id": "x-1", "model": "Llama-3.2-1B-mine", "model_base": "meta-llama/Llama-3.2-1B",
    "params_b": "1.24", "method": "qlora", "lora_rank": "8", "lora_targets": "q,v",
    "weight_dtype": "bf16", "quant": "nf4", "optimizer": "adamw", "grad_checkpointing": "true",
    "attention": "sdpa(mem-efficient)", "seq_len": "900", "micro_batch": "2", "grad_accum": "4",
    "packing": "false", "gpus": "1", "sharding": "none", "offload": "none", "gpu_model": "T4",
    "framework": "peft", "loss_impl": "standard", "compile": "false", "kind": "nvidia-smi",
    "note": "",
}  # fmt: skip


def size(*rows: dict[str, str]) -> list[dict[str, Any]]:
    """Every row sized."""
    return list(size_rows(rows, MODELS))


def test_a_row_keeps_its_columns_and_gains_a_prediction() -> None:
    (made,) = size(RUN)
    assert {k: made[k] for k in RUN} == RUN
    assert set(made) == set(RUN) | set(OUTPUT)
    assert made["error"] == ""
    assert 0 < made["predicted_low_gib"] < made["predicted_gib"] < made["predicted_high_gib"]
    assert made["peak_phase"] == "forward_loss"
    terms = sum(made[f"predicted_{term}_gib"] for term in (*TERMS, "overhead"))
    assert terms == pytest.approx(made["predicted_gib"], abs=0.01)


def test_no_column_of_a_trace_is_overwritten() -> None:
    row = TRACE | {"weights_gib": "2.30", "states_gib": "0.01"}
    (made,) = size(row)
    assert {k: made[k] for k in row} == row
    assert made["predicted_weights_gib"] == pytest.approx(2.305, abs=0.01)


def test_kind_says_which_figure() -> None:
    kinds = ("allocated", "reserved", "nvidia-smi")
    figures = [size(RUN | {"kind": kind})[0]["predicted_gib"] for kind in kinds]
    assert figures == sorted(figures)
    assert len(set(figures)) == 3
    assert size(TRACE)[0]["metric"] == "live"
    assert size(RUN | {"kind": ""})[0]["metric"] == "device"


def test_missing_and_empty_columns_take_the_preset() -> None:
    spare = {"model": "meta-llama/Llama-3.2-1B", "method": "lora", "framework": "axolotl"}
    empty = dict.fromkeys(RUN, "") | spare
    assert size(spare)[0]["error"] == ""
    assert size(spare)[0]["predicted_gib"] == size(empty)[0]["predicted_gib"]
    assert size(spare)[0]["predicted_gib"] != size(spare | {"framework": "trl"})[0]["predicted_gib"]


def test_traces_are_exact_where_the_sum_is_known() -> None:
    # full fine-tuning of a small batch peaks in the step: weights 2, gradients 2, moments 4 bytes,
    # and two temporaries of the embedding, the largest tensor
    (made,) = size(TRACE | {"method": "full", "seq_len": "16", "micro_batch": "1"})
    by_hand = (8 * 1235814400 + 2 * 2 * 128256 * 2048) / 2**30
    assert made["predicted_gib"] == pytest.approx(by_hand, rel=1e-4)
    assert made["peak_phase"] in {"optimizer_step", "backward"}


def test_names_are_found_in_any_case_and_near_ones_are_offered() -> None:
    assert size(TRACE | {"model": "META-LLAMA/llama-3.2-1b"})[0]["error"] == ""
    (made,) = size(TRACE | {"model": "meta-llama/Llama-3.2-1"})
    assert "nearest: meta-llama/Llama-3.2-1B" in made["error"]


def test_an_unknown_model_is_approximated_by_its_size() -> None:
    known = size(RUN | {"model": "meta-llama/Llama-2-7b-hf", "model_base": ""})[0]
    near = size(RUN | {"model": "somebody/new-model", "model_base": "", "params_b": "6.7"})[0]
    assert near["error"] == ""
    assert near["predicted_gib"] == pytest.approx(known["predicted_gib"], rel=0.25)
    by_name = size(RUN | {"model": "somebody/new-7B", "model_base": "", "params_b": ""})[0]
    assert by_name["error"] == ""
    with pytest.raises(UnknownModel, match=r"none of 90000"):
        approximate("x", 90000.0, tuple(MODELS.values()))


BAD = [
    ({"lora_rank": "0"}, "lora_rank is 0"),
    ({"lora_rank": "many"}, "lora_rank is 'many', not a number"),
    ({"seq_len": "99999999"}, "positions"),
    ({"seq_len": "12.5"}, "not a whole number"),
    ({"micro_batch": "-1"}, "micro_batch is -1"),
    ({"gpus": "0"}, "gpus is 0"),
    ({"gpus": "inf"}, "beyond any job"),
    ({"seq_len": "nan"}, "beyond any job"),
    ({"model": "no/such", "model_base": "", "params_b": ""}, "not known"),
    ({"model": "", "model_base": "", "params_b": ""}, "names no model"),
    ({"params_b": "big", "model": "no/such", "model_base": ""}, "not a number"),
    ({"method": "magic", "lora_rank": "", "lora_targets": ""}, "method 'magic'"),
    ({"weight_dtype": "int3"}, "weight_dtype"),
    ({"quant": "q2"}, "quant"),
    ({"framework": "zzz"}, "no preset"),
    ({"kind": "guess"}, "kind"),
    ({"sharding": "magic"}, "sharding"),
    ({"lora_targets": "no_such_proj"}, "no module"),
    ({"optimizer": "best"}, "optimizer"),
    ({"loss_impl": "none"}, "loss_impl"),
]


@pytest.mark.parametrize(("change", "words"), BAD)
def test_a_bad_row_says_why_in_one_line(change: dict[str, str], words: str) -> None:
    (made,) = size(RUN | change)
    assert words in made["error"]
    assert "\n" not in made["error"]
    assert made["predicted_gib"] == ""


def test_bad_rows_do_not_stop_the_rest() -> None:
    rows = [RUN, *(RUN | change for change, _ in BAD), TRACE]
    made = size(*rows)
    assert len(made) == len(rows)
    assert [bool(row["error"]) for row in made] == [False, *[True] * len(BAD), False]


WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["0", "-1", "nan", "1e300", "true", "none", "all-linear", "8", "q,v", "fp32 ("]
    ),
    st.sampled_from(sorted({*RUN.values(), *TRACE.values()})),
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted({*RUN, *TRACE})), WORDS))
def test_no_words_stop_the_rest(row: dict[str, str]) -> None:
    first, second = size(row, RUN)
    assert bool(first["error"]) != bool(first["predicted_gib"])
    assert "\n" not in first["error"].strip() or "\n" in "".join(row.values())
    assert second["error"] == ""


def test_notes_state_settings() -> None:
    plain = size(RUN | {"method": "lora", "quant": "none", "kind": "allocated"})[0]
    kept = RUN | {
        "method": "lora", "quant": "none", "kind": "allocated", "grad_checkpointing": "false",
    }  # fmt: skip
    fast = size(kept | {"note": "foak; bf16 autocast"})[0]
    slow = size(kept | {"note": "no autocast"})[0]
    assert plain["predicted_gib"] < fast["predicted_gib"] < slow["predicted_gib"]
