"""Plans: what fits, what runs fastest, what is said when nothing does."""

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse.sizing.card import Card
from warehouse.sizing.memory import estimate
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.plans import (
    BATCH_SAMPLES,
    PLAN_COLUMNS,
    Machine,
    needed_gib,
    plan_jobs,
    read_job,
    weights_download_gib,
)
from warehouse.sizing.setup import Setup

SEEDS = Path(__file__).resolve().parents[1] / "warehouse" / "seeds"


def load(name):
    with (SEEDS / name).open(newline="") as file:
        return list(csv.DictReader(file))


CARDS = {row["gpu"]: Card.from_row(row) for row in load("gpus.csv")}
MODELS = {row["hf_id"]: ModelSpec.from_row(row) for row in load("models.csv")}
JOBS = load("jobs.csv")
JOB = {
    "job": "small", "title": "a test", "model": "meta-llama/Llama-3.1-8B", "method": "lora",
    "tokens": "10000000", "seq_len": "2048", "lora_rank": "16", "lora_targets": "all-linear",
    "quant": "none", "weight_dtype": "bf16", "optimizer": "adamw", "framework": "trl",
}  # fmt: skip


def plan(machine, **changes):
    rows = list(plan_jobs([JOB | changes], MODELS, CARDS, [machine]))
    assert len(rows) == 1
    assert tuple(rows[0]) == PLAN_COLUMNS
    return rows[0]


def test_a_plan_fits_and_adds_up():
    row = plan(("A100-80GB-SXM", 2))
    assert row["fits"] is True
    assert row["reason"] is None
    assert row["vram_needed_gib"] <= row["vram_usable_gib"] == 80.0
    terms = ("weights", "gradients", "optimizer", "activations", "logits", "overhead")
    total = sum(row[f"vram_{term}_gib"] for term in terms)
    assert total == pytest.approx(row["vram_needed_gib"])
    assert row["hours"] == pytest.approx(1e7 / row["tokens_per_s"] / 3600)
    assert row["hours_low"] < row["hours"] < row["hours_high"]
    assert row["tokens_per_s_low"] < row["tokens_per_s"] < row["tokens_per_s_high"]
    # 8.03e9 parameters of 2 bytes
    assert row["weights_download_gib"] == pytest.approx(8_030_261_248 * 2 / 2**30)


def test_nothing_that_fits_is_faster():
    """Every other layout that the plan could have taken is no faster, or does not fit."""
    from warehouse.sizing.throughput import tokens_per_second

    row = plan(("L40S-48GB", 4), method="qlora", quant="nf4-dq")
    job = read_job(JOB | {"method": "qlora", "quant": "nf4-dq"}, MODELS)
    for sharding in ("ddp", "fsdp"):
        for checkpointing in ("none", "full"):
            for micro in (1, 2, 4, 8, 16):
                setup = job.setup.but(
                    gpus=4, sharding=sharding, grad_checkpointing=checkpointing, micro_batch=micro,
                    grad_accum=max(1, BATCH_SAMPLES // (4 * micro)),
                )  # fmt: skip
                if needed_gib(estimate(job.model, setup)) > 45.0:
                    continue
                speed = tokens_per_second(job.model, setup, CARDS["L40S-48GB"]).likely * 4
                assert speed <= row["tokens_per_s"] * 1.0001


def test_too_small_a_card_says_what_is_missing():
    row = plan(("L4-24GB", 1), model="meta-llama/Llama-3.1-70B")
    assert row["fits"] is False
    assert row["bound_by"] == "vram"
    assert row["tokens_per_s"] is None
    assert row["hours"] is None
    assert row["vram_needed_gib"] > row["vram_usable_gib"] == 22.5
    assert row["reason"].startswith("needs ")
    assert row["reason"].endswith("L4-24GB has 22.5")


@pytest.mark.parametrize(
    ("machine", "changes", "reason"),
    [
        (("Nobody-1GB", 1), {}, "unknown GPU 'Nobody-1GB'"),
        (("H100-80GB-SXM", 1.5), {}, "only whole GPUs"),
        (("H100-80GB-SXM", 0), {}, "0.0 GPUs"),
        (Machine("A100-80GB-SXM", 16, nodes=2), {}, "without a fabric"),
        (Machine("A100-80GB-SXM", 9, nodes=2, network_gbps=25.0), {}, "do not spread evenly"),
        (("A100-80GB-SXM", 1), {"model": "no/such"}, "no model 'no/such'"),
        (("A100-80GB-SXM", 1), {"tokens": ""}, "tokens is ''"),
        (("A100-80GB-SXM", 1), {"seq_len": "many"}, "seq_len is 'many'"),
        (("A100-80GB-SXM", 1), {"method": "magic"}, "method 'magic'"),
        (("P100-16GB-PCIe", 1), {"quant": "int8", "method": "qlora"}, "INT8"),
    ],
)
def test_not_eligible_says_why(machine, changes, reason):
    row = plan(machine, **changes)
    assert row["fits"] is False
    assert reason in row["reason"]
    assert "\n" not in row["reason"]


def test_cards_without_bf16_take_fp16():
    row = plan(("V100-32GB-SXM", 1), method="qlora", quant="nf4-dq")
    assert row["fits"] is True
    assert row["weight_dtype"] == "fp16"
    assert plan(("A100-40GB-SXM", 1), method="qlora", quant="nf4-dq")["weight_dtype"] == "bf16"


def test_a_slice_is_a_share_of_the_card():
    changes = {"method": "qlora", "quant": "nf4-dq", "model": "Qwen/Qwen2.5-0.5B", "seq_len": "512"}
    half, whole = plan(("A10-24GB", 0.5), **changes), plan(("A10-24GB", 1), **changes)
    assert half["fits"]
    assert half["vram_usable_gib"] == pytest.approx(whole["vram_usable_gib"] / 2)
    assert half["tokens_per_s"] <= whole["tokens_per_s"]
    assert half["gpu_count"] == 0.5


def test_several_machines_cost_speed():
    many = {"model": "meta-llama/Llama-3.1-70B", "method": "full"}
    near = plan(("H200-141GB-SXM", 16), **many)
    far = plan(Machine("H200-141GB-SXM", 16, nodes=2, network_gbps=12.5), **many)
    assert near["fits"]
    assert far["fits"]
    assert far["nodes"] == 2
    assert far["tokens_per_s"] < near["tokens_per_s"]


def test_racks_with_one_fabric_need_no_network():
    row = plan(Machine("GB200-186GB", 8, nodes=2))
    assert row["fits"]


def test_max_micro_batch_is_kept():
    small = {"model": "Qwen/Qwen2.5-0.5B", "seq_len": "512"}
    assert plan(("H200-141GB-SXM", 1), **small)["micro_batch"] > 2
    assert plan(("H200-141GB-SXM", 1), **small, max_micro_batch="2")["micro_batch"] == 2


def test_checkpoints_hold_what_is_trained():
    full = plan(("B200-180GB", 8), method="full", framework="axolotl")
    # bf16 weights and two bf16 moments of 8.03e9 parameters
    assert full["checkpoint_gib"] == pytest.approx(8_030_261_248 * 6 / 2**30, rel=0.01)
    # peft: fp32 adapter and moments of 41,943,040 parameters
    adapter = plan(("B200-180GB", 8), framework="axolotl")
    assert adapter["checkpoint_gib"] == pytest.approx(41_943_040 * 12 / 2**30, rel=0.01)


def test_packed_checkpoints_are_smaller_downloads():
    model = MODELS["Qwen/Qwen2.5-7B"]
    assert weights_download_gib(model, "gptq-int4") < 0.5 * weights_download_gib(model, "nf4")
    assert weights_download_gib(model, "nf4") == weights_download_gib(model, "none")


@given(
    st.sampled_from([job["job"] for job in JOBS]),
    st.sampled_from(sorted(CARDS)),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(2, 5),
)
@settings(max_examples=60, deadline=None)
def test_more_tokens_take_longer_and_more_gpus_never_need_more(name, gpu, count, factor):
    job = next(job for job in JOBS if job["job"] == name)
    more = job | {"tokens": str(int(job["tokens"]) * factor)}
    one, longer = plan_jobs([job, more], MODELS, CARDS, [(gpu, count)])
    assert one["fits"] == longer["fits"]
    if one["fits"]:
        assert longer["hours"] == pytest.approx(one["hours"] * factor)
        assert one["vram_needed_gib"] <= one["vram_usable_gib"]
        assert one["hours_low"] <= one["hours"] <= one["hours_high"]
    else:
        assert one["reason"]


@given(st.sampled_from(JOBS), st.sampled_from([1, 4, 8]), st.floats(1.0, 3.0))
@settings(max_examples=40, deadline=None)
def test_more_memory_never_hurts(job, count, factor):
    from dataclasses import replace

    card = CARDS["A100-40GB-SXM"]
    bigger = replace(card, vram_gib_usable=card.vram_gib_usable * factor)
    (base,) = plan_jobs([job], MODELS, {"x": card}, [("x", count)])
    (more,) = plan_jobs([job], MODELS, {"x": bigger}, [("x", count)])
    if base["fits"]:
        assert more["fits"]
        assert more["nodes"] <= base["nodes"]
        if more["nodes"] == base["nodes"]:
            assert more["tokens_per_s"] >= base["tokens_per_s"] * 0.999


def test_every_reference_job_fits_somewhere():
    machines = [(gpu, count) for gpu in CARDS for count in (1, 8)]
    fitting = {row["job"] for row in plan_jobs(JOBS, MODELS, CARDS, machines) if row["fits"]}
    assert {job["job"] for job in JOBS} == fitting


def test_machines_are_joined_where_one_is_too_small_and_only_there():
    many = {"model": "meta-llama/Llama-3.1-70B", "method": "full"}
    row = plan(("A100-80GB-SXM", 8), **many)
    assert row["fits"]
    assert row["nodes"] > 1
    assert row["gpu_count"] == 8
    # Two machines hold it, one does not: the fewest are taken.
    fewer = plan(Machine("A100-80GB-SXM", 8 * row["nodes"] // 2, row["nodes"] // 2, 25.0), **many)
    assert not fewer["fits"]
    assert plan(("A100-80GB-SXM", 8))["nodes"] == 1
    assert not plan(("A100-80GB-SXM", 4), **many)["fits"]


def test_setups_say_they_are_packed():
    job = read_job(JOB, MODELS)
    assert isinstance(job.setup, Setup)
    assert job.setup.packing
    assert job.setup.loss_impl == "chunked"  # trl's default
