"""Speed: arithmetic worked by hand, properties that physics demands, rows read as written."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse.sizing.card import Card
from warehouse.sizing.errors import NotSupported, SizingError
from warehouse.sizing.memory import estimate
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.setup import Setup
from warehouse.sizing.steptime import flops_per_token, matrix_params, peak_flops
from warehouse.sizing.throughput import (
    framework_key,
    shape_of,
    stack_of,
    tokens_per_second,
    work_of,
)
from warehouse.sizing.throughput_rows import (
    find_card,
    read_row,
    shape_from_params,
    size_row,
)

SEEDS = Path(__file__).resolve().parents[1] / "warehouse" / "seeds"


def load(name):
    with (SEEDS / name).open(newline="") as file:
        return list(csv.DictReader(file))


CARDS = {row["gpu"]: Card.from_row(row) for row in load("gpus.csv")}
MODELS = {row["hf_id"]: ModelSpec.from_row(row) for row in load("models.csv")}
LLAMA = MODELS["meta-llama/Llama-2-7b-hf"]
A100 = CARDS["A100-80GB-SXM"]


# --- worked by hand ---------------------------------------------------------------------------

# Llama-2-7B: h 4096, ffn 11008, 32 layers, vocabulary 32000
LAYER = 4 * 4096 * 4096 + 3 * 4096 * 11008  # 202,375,168
BODY = 32 * LAYER  # 6,476,005,376
HEAD = 32000 * 4096  # 131,072,000
SCORES = 2 * 2048 * 4096 * 32  # forward, causal, 2048 tokens: 536,870,912


def test_matrix_parameters_leave_the_embedding_out():
    assert matrix_params(shape_of(LLAMA)) == BODY + HEAD == 6_607_077_376


@pytest.mark.parametrize(
    ("setup", "products", "scores"),
    [
        (Setup(method="full", grad_checkpointing="none"), 6 * (BODY + HEAD), 3.5 * SCORES),
        (Setup(method="full"), 6 * (BODY + HEAD) + 2 * BODY, 4.5 * SCORES),
        (Setup(method="full", grad_checkpointing="selective"),
         6 * (BODY + HEAD) + BODY, 4.0 * SCORES),
        # rank 16 on q, k, v, o (4 x 16 x 8192) and gate, up, down (3 x 16 x 15104): 39,976,960
        (Setup(method="lora", grad_checkpointing="none"),
         4 * (BODY + HEAD) + 6 * 39_976_960, 3.5 * SCORES),
        (Setup(method="qlora", quant="nf4"),
         4 * (BODY + HEAD) + 6 * 39_976_960 + 2 * BODY, 4.5 * SCORES),
    ],
)  # fmt: skip
def test_flops_by_method(setup, products, scores):
    found = flops_per_token(work_of(LLAMA, setup, A100))
    assert found == pytest.approx((products, scores), rel=1e-9)


def test_mixtures_count_the_experts_a_token_meets():
    shape = shape_of(MODELS["mistralai/Mixtral-8x7B-v0.1"])
    attention = 4096 * (2 * 4096 + 2 * 1024)
    layer = attention + 2 * 3 * 4096 * 14336 + 4096 * 8  # two of eight experts, and the router
    assert shape.layer_params == pytest.approx(layer)
    assert matrix_params(shape) == pytest.approx(32 * layer + 32000 * 4096)


def test_encoder_decoder_tokens_meet_one_stack():
    spec = MODELS["google/flan-t5-xl"]
    shape = shape_of(spec)
    assert shape.layers * shape.layer_params == pytest.approx(spec.linear_params / 2)


@pytest.mark.parametrize(
    ("gpu", "precision", "tflops"),
    [
        ("A100-80GB-SXM", "bf16", 312), ("A100-80GB-SXM", "fp8", 312), ("A10G-24GB", "bf16", 70),
        ("H100-80GB-SXM", "fp8", 1979), ("H100-80GB-SXM", "fp4", 1979),
        ("B200-180GB", "fp4", 9000), ("B300-288GB", "fp4", 13500), ("V100-16GB-SXM", "bf16", 125),
        ("T4-16GB", "fp32", 8.1), ("P100-16GB-PCIe", "bf16", 18.7),
    ],
)  # fmt: skip
def test_peak_falls_back_to_what_the_card_has(gpu, precision, tflops):
    assert peak_flops(CARDS[gpu], precision) == pytest.approx(tflops * 1e12)


def test_no_peak_is_an_error():
    card = replace(A100, bf16_dense_tflops=None, fp16_dense_tflops=None, fp32_tflops=None)
    with pytest.raises(SizingError, match="no peak"):
        tokens_per_second(LLAMA, Setup(), card)


# --- what physics demands ---------------------------------------------------------------------

SETUPS = st.builds(
    lambda method, seq, micro, accumulate, gpus, sharding, checkpointing, framework: Setup(
        method=method,
        quant="nf4" if method == "qlora" else "none",
        seq_len=seq,
        micro_batch=micro,
        grad_accum=accumulate,
        gpus=gpus,
        sharding="none" if gpus == 1 else sharding,
        grad_checkpointing=checkpointing,
        framework=framework,
    ),
    st.sampled_from(["full", "lora", "qlora", "prefix", "adapter"]),
    st.sampled_from([128, 512, 2048, 8192]),
    st.sampled_from([1, 2, 8, 32]),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["ddp", "zero2", "zero3", "fsdp"]),
    st.sampled_from(["none", "selective", "full"]),
    st.sampled_from(["trl", "torchtune", "nemo", "something new"]),
)
NAMES = st.sampled_from(
    [
        name
        for name, spec in MODELS.items()
        if spec.is_text and (spec.max_position is None or spec.max_position >= 8192)
    ]
)
GPUS = st.sampled_from(sorted(CARDS))


def speed(model, setup, card):
    return tokens_per_second(MODELS[model], setup, card)


@given(NAMES, SETUPS, GPUS)
@settings(max_examples=400, deadline=None)
def test_never_beyond_the_peak(model, setup, gpu):
    card = CARDS[gpu]
    found = speed(model, setup, card)
    assert 0 < found.low <= found.likely <= found.high
    work = work_of(MODELS[model], setup, card)
    products, scores = flops_per_token(work)
    assert found.high * products <= peak_flops(card, work.precision) * 1.000001
    assert (
        found.high * (products + scores)
        <= max(peak_flops(card, work.precision), peak_flops(card, "bf16")) * 1.000001
    )
    assert 0 < found.mfu < 1


@given(NAMES, SETUPS, GPUS, st.floats(1.0, 4.0))
@settings(max_examples=200, deadline=None)
def test_a_better_card_is_never_slower(model, setup, gpu, factor):
    card = CARDS[gpu]
    base = speed(model, setup, card).likely
    faster_memory = replace(card, mem_bandwidth_gbps=card.mem_bandwidth_gbps * factor)
    assert speed(model, setup, faster_memory).likely >= base * (1 - 1e-9)
    half = card.bf16_dense_tflops
    if half:
        more = replace(card, bf16_dense_tflops=half * factor)
        assert speed(model, setup, more).likely >= base * (1 - 1e-9)
    if card.tdp_watts:
        more = replace(card, tdp_watts=card.tdp_watts * factor)
        assert speed(model, setup, more).likely >= base * (1 - 1e-9)
    if card.has_fast_links:
        more = replace(card, interconnect_gbps=card.interconnect_gbps * factor)
        assert speed(model, setup, more).likely >= base * (1 - 1e-9)


@given(NAMES, SETUPS, GPUS)
@settings(max_examples=200, deadline=None)
def test_more_work_is_never_faster(model, setup, gpu):
    card = CARDS[gpu]
    base = speed(model, setup, card).likely
    if setup.grad_checkpointing == "none":
        assert speed(model, setup.but(grad_checkpointing="full"), card).likely <= base
    if setup.micro_batch > 1:
        smaller = setup.but(micro_batch=setup.micro_batch // 2)
        assert speed(model, smaller, card).likely <= base * (1 + 1e-9)
    if setup.method == "lora" and setup.gpus == 1:
        full = setup.but(method="full")
        trained = estimate(MODELS[model], full).trainable_params
        slow = tokens_per_second(MODELS[model], full, card, trainable_params=trained)
        assert slow.flops_per_token > speed(model, setup, card).flops_per_token
    if setup.sharding == "fsdp":
        assert speed(model, setup.but(sharding="zero2"), card).likely >= base * (1 - 1e-9)


def test_machines_apart_cost_speed():
    inside = Setup(method="full", gpus=16, sharding="fsdp", micro_batch=2)
    apart = inside.but(nodes=2)
    near = tokens_per_second(LLAMA, inside, A100).likely
    far = tokens_per_second(LLAMA, apart, A100, network_gbps=25.0).likely
    slow = tokens_per_second(LLAMA, apart, A100, network_gbps=1.0).likely
    assert slow < far <= near
    assert tokens_per_second(LLAMA, apart, A100, network_gbps=0.3).bound_by == "interconnect"


def test_cards_without_links_shard_slowly():
    setup = Setup(method="full", gpus=4, sharding="fsdp", micro_batch=1, seq_len=1024)
    bridge = CARDS["L40S-48GB"]
    assert tokens_per_second(LLAMA, setup, bridge).bound_by == "interconnect"
    alone = setup.but(gpus=1, sharding="none")
    assert (
        tokens_per_second(LLAMA, setup, bridge).likely
        < 0.7 * tokens_per_second(LLAMA, alone, bridge).likely
    )


def test_a_host_optimizer_costs_speed():
    setup = Setup(method="full", gpus=8, sharding="fsdp", micro_batch=2)
    host = tokens_per_second(LLAMA, setup.but(offload="params+optimizer"), A100)
    assert host.likely < 0.7 * tokens_per_second(LLAMA, setup, A100).likely


def test_vision_and_naive_spreading_are_refused():
    with pytest.raises(NotSupported, match="no text model"):
        tokens_per_second(MODELS["black-forest-labs/FLUX.1-dev"], Setup(), A100)
    with pytest.raises(NotSupported, match="one GPU at a time"):
        tokens_per_second(LLAMA, Setup(gpus=2, sharding="device_map"), A100)


def test_power_limits_hold_small_boards_back():
    card = CARDS["L4-24GB"]
    cooled = replace(card, tdp_watts=300.0)
    setup = Setup(micro_batch=4)
    limited = tokens_per_second(LLAMA, setup, card).likely
    assert limited < 0.8 * tokens_per_second(LLAMA, setup, cooled).likely


def test_unknown_programs_have_a_wider_band():
    known = tokens_per_second(LLAMA, Setup(framework="torchtune"), A100)
    other = tokens_per_second(LLAMA, Setup(framework="something new"), A100)
    assert other.high / other.low > known.high / known.low


# --- names and rows ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "gpu"),
    [
        ("H100-SXM5-80GB", "H100-80GB-SXM"), ("NVIDIA H100 PCIe 80GB", "H100-80GB-PCIe"),
        ("A100-SXM4-40GB", "A100-40GB-SXM"), ("NVIDIA RTX A6000", "RTX-A6000-48GB"),
        ("RTX-6000-Ada", "RTX-6000-Ada-48GB"), ("H100-SXM-96GB-HBM2e-500W", "H100-80GB-SXM"),
        ("GB300", "GB300-288GB"), ("B300-SXM-270GB", "B300-288GB"), ("A10G", "A10G-24GB"),
        ("A10", "A10-24GB"), ("L40", "L40-48GB"), ("GeForce RTX 3090", "RTX-3090-24GB"),
        ("AMD Instinct MI300X", "MI300X-192GB"), ("H200-SXM-141GB", "H200-141GB-SXM"),
    ],
)  # fmt: skip
def test_labels_name_cards(label, gpu):
    assert find_card(label, CARDS).gpu == gpu


@pytest.mark.parametrize("label", ["", "H1000", "RTX 9090", "A 100x"])
def test_labels_are_never_guessed(label):
    with pytest.raises(SizingError, match="unknown GPU"):
        find_card(label, CARDS)


@pytest.mark.parametrize(
    ("framework", "stack", "key"),
    [
        ("Megatron-Bridge 26.04.01", "fused", "megatron-bridge"),
        ("HF Trainer + DeepSpeed", "trainer", "trainer"),
        ("transformers", "trainer", "trainer"), ("HF TRL + Liger", "trainer", "trainer"),
        ("trl", "trainer", "trainer"), ("torchtune (milabench)", "compiled", "torchtune"),
        ("NeMo AutoModel", "compiled", "nemo automodel"), ("NeMo 24.07", "fused", "nemo"),
        ("torchtitan+torchao", "compiled", "torchtitan"), ("my own loop", "eager", "my own loop"),
        ("MLPerf Training v5.1", "fused", "mlperf"), ("", "eager", ""),
    ],
)  # fmt: skip
def test_frameworks(framework, stack, key):
    assert stack_of(framework) == stack
    assert framework_key(framework) == key


ROW = {
    "model": "meta-llama/Llama-2-7b-hf", "params_b": "6.74", "method": "lora",
    "gpu_model": "A100-SXM4-80GB", "gpus": "8", "nodes": "2", "interconnect": "NVLink; 4x100 Gb IB",
    "precision": "bf16", "seq_len": "2048", "micro_batch": "2", "global_batch": "64",
    "sharding": "ZeRO-3", "grad_checkpointing": "True", "flash_attention": "True",
    "framework": "HF Trainer + DeepSpeed", "note": "", "basis": "reported",
    "active_params_b": "",
}  # fmt: skip


def test_a_row_is_read_as_written():
    work, card = read_row(ROW, MODELS, CARDS)
    assert card.gpu == "A100-80GB-SXM"
    assert (work.gpus, work.fast_domain, work.shard, work.shard_gpus) == (8, 4, "zero3", 8)
    assert work.micro_batches == 4.0
    assert work.network_gbps == pytest.approx(4 * 100 / 8 / 4)
    assert (work.recompute, work.trained_share, work.flash) == (1.0, 0.0, True)


@pytest.mark.parametrize(
    ("sharding", "tensor", "pipeline", "context", "expert", "shard"),
    [
        ("FSDP0 TP4 PP8 CP2 EP1", 4, 8, 2, 1, "zero1"),
        ("FSDP64 TP1 PP1 CP1 EPn/a", 1, 1, 1, 1, "zero3"),
        ("TP1 PP1 CP1 EP8", 1, 1, 1, 8, "ddp"),
        ("FSDP2 4, CP 2", 1, 1, 2, 1, "zero3"),
        ("FSDP 8 x TP 8", 8, 1, 1, 1, "zero3"),
        ("tp=2, zero1=4", 2, 1, 1, 1, "zero1"),
        ("FSDP SHARD_GRAD_OP", 1, 1, 1, 1, "zero2"),
        ("ZeRO-2", 1, 1, 1, 1, "zero2"), ("DDP", 1, 1, 1, 1, "ddp"),
    ],
)  # fmt: skip
def test_sharding_text(sharding, tensor, pipeline, context, expert, shard):
    work, _ = read_row(ROW | {"gpus": "64", "nodes": "8", "sharding": sharding}, MODELS, CARDS)
    assert (work.tensor, work.pipeline, work.context) == (tensor, pipeline, context)
    assert (work.expert, work.shard) == (expert, shard)


def test_unpacked_rows_count_real_tokens():
    packed = size_row(ROW | {"gpus": "1", "nodes": "1", "sharding": "none"}, MODELS, CARDS)
    loose = size_row(
        ROW | {"gpus": "1", "nodes": "1", "sharding": "none", "note": "unpacked, about 60 each"},
        MODELS, CARDS,
    )  # fmt: skip
    likely = "tokens_per_s_per_gpu_likely"
    assert loose[likely] < 0.5 * packed[likely]


def test_results_in_a_row_are_never_read():
    told = ROW | {
        "tokens_per_s_total": "1", "tokens_per_s_per_gpu": "1", "tflops_per_gpu": "1",
        "mfu_pct": "1", "mfu_calc_pct": "1",
    }  # fmt: skip
    assert size_row(told, MODELS, CARDS) == size_row(ROW, MODELS, CARDS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu_model": "Quantum 1"}, "unknown GPU 'Quantum 1'"),
        ({"model": "nobody/none", "params_b": ""}, "unknown model 'nobody/none'"),
        ({"method": "magic"}, "method 'magic' is not one of"),
        ({"seq_len": "long"}, "seq_len is 'long', not a number"),
        ({"gpus": "-8"}, "gpus is '-8', not a positive number"),
        ({"gpus": "2.5"}, "gpus is '2.5', not a whole number"),
        ({"micro_batch": "nan"}, "micro_batch is 'nan', not a positive number"),
    ],
)
def test_a_bad_row_says_why(change, message):
    result = size_row(ROW | change, MODELS, CARDS)
    assert message in result["error"]
    assert "\n" not in result["error"]
    assert result["tokens_per_s_per_gpu_likely"] is None


def test_an_unknown_model_is_guessed_by_size():
    result = size_row(ROW | {"model": "someone/new-7b"}, MODELS, CARDS)
    known = size_row(ROW, MODELS, CARDS)
    likely = "tokens_per_s_per_gpu_likely"
    assert result["error"] is None
    assert result[likely] == pytest.approx(known[likely], rel=0.15)


@given(st.floats(1e8, 1e12))
def test_guessed_shapes_keep_the_count(params):
    shape = shape_from_params(params)
    assert matrix_params(shape) == pytest.approx(params, rel=0.02) or shape.layers == 1.0


NUMBERS = st.one_of(
    st.sampled_from(["", "0", "1", "8", "64", "4096", "1e9", "1e300", "nan", "-1", "x", "2.5"])
)
TEXTS = st.one_of(
    st.sampled_from(
        ["", "NVLink", "PCIe old", "24x100 Gb", "TP0 PP0 CP0 EP0", "FSDP9999 TP64", "ZeRO-3",
         "submission dependent", "fp8/fp4 mixed", "nvfp4", "about 0 each, unpacked", "99.99"]
    ),
    st.text(max_size=12),
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(["params_b", "gpus", "nodes", "seq_len", "micro_batch",
                                     "global_batch", "active_params_b"]), NUMBERS),
    st.dictionaries(st.sampled_from(["model", "method", "interconnect", "precision", "sharding",
                                     "grad_checkpointing", "framework", "note"]), TEXTS),
)  # fmt: skip
@settings(max_examples=500, deadline=None)
def test_no_row_stops_the_rest(numbers, texts):
    result = size_row(ROW | numbers | texts, MODELS, CARDS)
    if result["error"] is None:
        low, likely, high = (
            result[f"tokens_per_s_per_gpu_{name}"] for name in ("low", "likely", "high")
        )
        assert 0 <= low <= likely <= high < math.inf
