"""Memory: values worked by hand, and what must hold for every model and set-up."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.evidence import ROOT
from warehouse.sizing.errors import NotSupported, SizingError
from warehouse.sizing.memory import METRICS, PHASES, Estimate, estimate
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.presets import PRESETS, find_preset, make_setup
from warehouse.sizing.setup import Setup, check_precision

with (ROOT / "warehouse" / "seeds" / "models.csv").open(newline="", encoding="utf-8") as seed:
    MODELS = {row["hf_id"]: ModelSpec.from_row(row) for row in csv.DictReader(seed)}
LLAMA_8B = MODELS["meta-llama/Llama-3.1-8B"]
LLAMA_1B = MODELS["meta-llama/Llama-3.2-1B"]
MISTRAL = MODELS["mistralai/Mistral-7B-v0.1"]
GIB = 2**30

TEXT = sorted(name for name, spec in MODELS.items() if spec.is_text)
IMAGE = sorted(name for name, spec in MODELS.items() if spec.is_diffusion)
OPTIMIZERS = ["adamw", "adamw8bit", "paged_adamw", "sgd", "adafactor"]
METHODS = ["full", "lora", "qlora", "dora", "ia3", "prompt", "prefix", "adapter", "adapter_v2"]


@st.composite
def setups(draw: st.DrawFn, **fixed: Any) -> Setup:
    """Any set-up that can be run on any text model."""
    method = draw(st.sampled_from(METHODS))
    gpus = draw(st.sampled_from([1, 1, 2, 3, 4, 8]))
    sharding = draw(st.sampled_from(["ddp", "zero1", "zero2", "zero3", "fsdp"]))
    made: dict[str, Any] = {
        "method": method,
        "weight_dtype": draw(st.sampled_from(["bf16", "fp16", "fp32"])),
        "adapter_dtype": draw(st.sampled_from(["bf16", "fp32"])),
        "quant": draw(st.sampled_from(["nf4", "nf4-dq", "int8"])) if method == "qlora" else "none",
        "lora_rank": draw(st.integers(1, 128)),
        "optimizer": draw(st.sampled_from(OPTIMIZERS)),
        "master_weights": draw(st.booleans()),
        "foreach": draw(st.booleans()),
        "grad_checkpointing": draw(st.sampled_from(["none", "full", "selective"])),
        "attention": draw(st.sampled_from(["flash", "sdpa", "eager"])),
        "seq_len": draw(st.integers(16, 512)),
        "micro_batch": draw(st.integers(1, 8)),
        "grad_accum": draw(st.integers(1, 4)),
        "loss_impl": draw(st.sampled_from(["standard", "fused_ce", "fused_linear_ce", "chunked"])),
        "gpus": gpus,
        "sharding": sharding if gpus > 1 else "none",
        "autocast": draw(st.booleans()),
        "outputs_kept": draw(st.booleans()),
        "offload": draw(st.sampled_from(["none", "optimizer", "activations", "params+optimizer"])),
    }  # fmt: skip
    return Setup(**(made | fixed))


def peak(model: ModelSpec, setup: Setup) -> float:
    """Bytes of live tensors at the peak."""
    return estimate(model, setup).peak.total


def not_more(small: float, large: float) -> bool:
    """Whether small <= large, up to the rounding of sums."""
    return small <= large * (1 + 1e-9) + 1


models = st.sampled_from(TEXT).map(MODELS.__getitem__)


# --- values worked by hand --------------------------------------------------------------------


def test_pure_bf16_full_finetuning_takes_ten_bytes_a_parameter() -> None:
    # weights 2, gradients 2, two moments 4, and the foreach step's square roots 2
    found = estimate(MISTRAL, Setup(method="full", seq_len=512))
    assert found.peak_phase == "optimizer_step"
    assert found.peak.total == pytest.approx(10 * MISTRAL.params_total)


def test_fused_optimizer_needs_no_temporaries() -> None:
    found = estimate(MISTRAL, Setup(method="full", seq_len=512, optimizer="adamw_fused"))
    assert found.peak.total == pytest.approx(8 * MISTRAL.params_total, rel=0.02)


def test_nf4_with_double_quantisation_takes_4_127_bits() -> None:
    setup = Setup(method="qlora", quant="nf4-dq", kbit_fp32=False, lora_targets="q,v", lora_rank=8)
    packed = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336) * (4 + 8 / 64 + 32 / 16384) / 8
    rest = 2 * (2 * 128256 * 4096 + 65 * 4096)
    adapters = 4 * 32 * 8 * ((4096 + 4096) + (4096 + 1024))
    assert estimate(LLAMA_8B, setup).peak.weights == pytest.approx(packed + rest + adapters)


def test_kbit_preparation_casts_what_is_not_packed_to_fp32() -> None:
    setup = Setup(method="qlora", quant="nf4", kbit_fp32=True)
    less = estimate(LLAMA_8B, setup.but(kbit_fp32=False)).peak.weights
    unpacked = 2 * 128256 * 4096 + 65 * 4096
    assert estimate(LLAMA_8B, setup).peak.weights - less == pytest.approx(2 * unpacked)


def test_adapter_parameters_by_hand() -> None:
    # rank x (in + out) of every matrix of 16 blocks of Llama-3.2-1B
    block = (2048 + 2048) * 2 + (2048 + 512) * 2 + (2048 + 8192) * 3
    found = estimate(LLAMA_1B, Setup(lora_rank=16, lora_targets="all-linear"))
    assert found.trainable_params == 16 * 16 * block == 11_272_192


@pytest.mark.parametrize(
    ("name", "rank", "params"),
    [
        # published adapter sizes: diffusers' text-to-image LoRA scripts
        ("stable-diffusion-v1-5/stable-diffusion-v1-5", 4, 797_184),
        ("stabilityai/stable-diffusion-xl-base-1.0", 4, 5_806_080),
    ],
)
def test_diffusion_adapters_by_hand(name: str, rank: int, params: int) -> None:
    setup = Setup(lora_rank=rank, image_px=512)
    assert estimate(MODELS[name], setup).trainable_params == params


def test_mixed_precision_fsdp_takes_twenty_bytes_a_parameter_over_all_gpus() -> None:
    # fp32 weights, gradients, two moments and the step's temporaries, spread over four GPUs;
    # a published run of Llama-3-8B reports 40.17 GB = 20 x 8.03 / 4
    setup = make_setup("transformers", "full", gpus=4, sharding="fsdp", seq_len=512)
    found = estimate(LLAMA_8B, setup)
    assert found.peak_phase == "optimizer_step"
    assert found.peak.total == pytest.approx(20 * LLAMA_8B.params_total / 4)
    pure = make_setup("transformers", "full", gpus=4, sharding="fsdp", weight_dtype="bf16")
    assert estimate(LLAMA_8B, pure).peak.total < 0.7 * found.peak.total


def test_saved_activations_of_one_block_by_hand() -> None:
    # Llama-3.2-1B, full, no checkpointing, one token more: h 2048, i 8192, kv 512, 32 heads
    h, i, kv = 2048, 8192, 512
    norms = 2 * (4 * h + 4 + 2 * h)  # fp32 copy, one statistic, normed copy for the weight
    inputs = 2 * 2 * h + 2 * i  # of q, k, v together; of gate and up; of down
    attention = 2 * (h + 2 * kv) + 2 * h + 4 * 32  # q, k, v, output, log-sum-exp
    gate = 3 * 2 * i  # gate, its activation, up
    block = norms + inputs + attention + gate
    setup = Setup(method="full", grad_checkpointing="none", loss_impl="fused_linear_ce",
                  attention="flash", seq_len=1000)  # fmt: skip
    more = estimate(LLAMA_1B, setup.but(micro_batch=2)).phases["forward_loss"].activations
    less = estimate(LLAMA_1B, setup).phases["forward_loss"].activations
    tail = 4 * h + 4 + 2 * h + 2 * h  # last norm, and the head's input
    assert more - less == pytest.approx(1000 * (16 * block + tail))


def test_standard_loss_holds_twelve_bytes_a_logit() -> None:
    setup = Setup(outputs_kept=False)
    found = estimate(LLAMA_8B, setup).phases["forward_loss"]
    assert found.logits == 12 * 2048 * 128256
    kept = estimate(LLAMA_8B, setup.but(outputs_kept=True)).phases["forward_loss"]
    assert kept.logits == 14 * 2048 * 128256


def test_zero_stages_by_hand() -> None:
    base = Setup(method="full", gpus=4, seq_len=128, foreach=False)
    p = LLAMA_8B.params_total

    def step(sharding: str) -> tuple[float, float, float]:
        phase = estimate(LLAMA_8B, base.but(sharding=sharding)).phases["optimizer_step"]
        return phase.weights / p, phase.gradients / p, phase.optimizer / p

    assert step("ddp") == pytest.approx((2, 2, 4))
    assert step("fsdp") == pytest.approx((0.5, 0.5, 1))
    # DeepSpeed: fp32 master weights and moments, 12 bytes
    assert step("zero1") == pytest.approx((2, 2, 3))
    assert step("zero2") == pytest.approx((2, 0.5, 3))
    assert step("zero3") == pytest.approx((0.5, 0.5, 3))


# --- what must hold ---------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(models, setups())
def test_every_estimate_is_whole(model: ModelSpec, setup: Setup) -> None:
    found = estimate(model, setup)
    assert set(found.phases) == set(PHASES)
    assert all(value >= 0 for phase in found.phases.values() for value in phase)
    assert found.peak.total == max(phase.total for phase in found.phases.values())
    middles = [found.gib(metric) for metric in METRICS]
    assert middles == sorted(middles)
    for metric in METRICS:
        low, likely, high = found.range_gib(metric)
        assert 0 < low <= likely <= high
    assert sum(found.terms_gib().values()) == pytest.approx(found.gib("device"))


@settings(max_examples=200, deadline=None)
@given(models, setups(), st.sampled_from(["micro_batch", "seq_len", "lora_rank"]))
def test_more_never_needs_less(model: ModelSpec, setup: Setup, field: str) -> None:
    more = setup.but(**{field: getattr(setup, field) * 2})
    assume(not model.max_position or more.seq_len <= model.max_position)
    assert not_more(peak(model, setup), peak(model, more))
    for metric in METRICS:
        assert not_more(estimate(model, setup).gib(metric), estimate(model, more).gib(metric))


@settings(max_examples=150, deadline=None)
@given(models, setups(), st.sampled_from(["num_layers", "vocab_size", "intermediate_size"]))
def test_a_larger_model_never_needs_less(model: ModelSpec, setup: Setup, field: str) -> None:
    larger = replace(model, **{field: getattr(model, field) + 64})
    assert not_more(peak(model, setup), peak(larger, setup))


@settings(max_examples=150, deadline=None)
@given(models, setups(autocast=False))
def test_wider_numbers_never_need_less(model: ModelSpec, setup: Setup) -> None:
    assert not_more(
        peak(model, setup.but(weight_dtype="bf16")), peak(model, setup.but(weight_dtype="fp32"))
    )
    # adapters narrower than fp32 activations cast a copy of their input each, wider ones share it
    if setup.weight_dtype != "fp32" and setup.method != "qlora":
        narrow, wide = (peak(model, setup.but(adapter_dtype=d)) for d in ("bf16", "fp32"))
        assert not_more(narrow, wide)
    if setup.method == "qlora":
        widths = [peak(model, setup.but(quant=q)) for q in ("nf4-dq", "nf4", "int8")]
        assert widths == sorted(widths)


@settings(max_examples=200, deadline=None)
@given(models, setups())
def test_checkpointing_never_needs_more(model: ModelSpec, setup: Setup) -> None:
    none, some, full = (
        estimate(model, setup.but(grad_checkpointing=how)).peak
        for how in ("none", "selective", "full")
    )
    slack = full.buffers  # FSDP keeps the gradients of checkpoints
    assert not_more(full.total, none.total + slack)
    assert not_more(some.total, none.total + some.buffers)
    assert not_more(full.total, some.total + slack)


@settings(max_examples=200, deadline=None)
@given(models, setups(), st.integers(2, 16), st.sampled_from(["zero1", "zero2", "zero3", "fsdp"]))
def test_sharding_further_needs_only_buffers_more(
    model: ModelSpec, setup: Setup, gpus: int, sharding: str
) -> None:
    fewer = setup.but(gpus=gpus - 1, sharding=sharding)
    more = estimate(model, setup.but(gpus=gpus, sharding=sharding))
    assert not_more(more.peak.total - more.peak.buffers, peak(model, fewer))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(IMAGE).map(MODELS.__getitem__),
    st.sampled_from(["full", "lora"]),
    st.integers(1, 8),
    st.sampled_from([256, 512, 768, 1024]),
)
def test_images(model: ModelSpec, method: str, batch: int, side: int) -> None:
    setup = Setup(method=method, image_px=side, micro_batch=batch)
    found = estimate(model, setup)
    assert found.trainable_params > 0
    assert not_more(found.peak.total, peak(model, setup.but(image_px=2 * side)))
    assert not_more(found.peak.total, peak(model, setup.but(micro_batch=2 * batch)))
    assert not_more(found.peak.total, peak(model, setup.but(grad_checkpointing="none")))
    assert not_more(peak(model, setup.but(method="lora")), peak(model, setup.but(method="full")))


def test_vision_encoders_go_by_image() -> None:
    vit = MODELS["google/vit-base-patch16-224"]
    by_pixels = estimate(vit, Setup(method="full", image_px=224, micro_batch=32))
    by_tokens = estimate(vit, Setup(method="full", seq_len=197, micro_batch=32))
    assert by_pixels.peak == by_tokens.peak
    larger = estimate(vit, Setup(method="full", image_px=448, micro_batch=32))
    assert not_more(by_pixels.peak.total, larger.peak.total)


def test_a_vision_language_model_brings_its_tower_and_its_image() -> None:
    llava = MODELS["llava-hf/llava-1.5-7b-hf"]
    setup = Setup(seq_len=512)
    text = estimate(llava, setup).phases["forward_loss"]
    image = estimate(llava, setup.but(image_px=336)).phases["forward_loss"]
    assert text.weights > 2 * (llava.params_total + 324_487_168)
    assert image.logits / text.logits == (512 + 24**2) / 512  # 336 / 14 = 24 patches a side


# --- metrics, presets, refusals ---------------------------------------------------------------


def test_metrics_stack_up() -> None:
    found = estimate(LLAMA_8B, Setup(), "A100-80GB")
    live, allocated, reserved, device = (found.gib(metric) for metric in METRICS)
    assert live < allocated < reserved < device
    over = {gpu: estimate(LLAMA_8B, Setup(), gpu).gib("device") for gpu in ("T4", "RTX-4090-24GB")}
    assert over["T4"] < over["RTX-4090-24GB"] < device


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(SizingError, match="not one of"):
        estimate(LLAMA_8B, Setup()).gib("total")


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_presets_only_set_fields(name: str, method: str) -> None:
    setup = make_setup(name, method)
    assert setup.framework == name
    assert setup.method == method
    assert PRESETS[name].source
    found: Estimate = estimate(LLAMA_8B, setup)
    assert found.gib("device") > 0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("trl/peft", "trl"), ("LLaMA-Factory", "llama-factory"), ("ms-swift", "ms-swift"),
        ("fms-acceleration (HF Trainer)", "transformers"), ("Unsloth", "unsloth"),
        ("fitcheck measure.py (transformers+peft)", "peft"),
    ],
)  # fmt: skip
def test_frameworks_as_people_write_them(text: str, name: str) -> None:
    assert find_preset(text).name == name


def test_an_unknown_framework_gets_the_nearest() -> None:
    with pytest.raises(SizingError, match="did you mean torchtune"):
        find_preset("torchtun")
    with pytest.raises(SizingError, match="no field flash"):
        make_setup("trl", "lora", flash=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lora_rank": 0}, "lora_rank is 0"),
        ({"micro_batch": 0}, "micro_batch is 0"),
        ({"seq_len": -5}, "seq_len is -5"),
        ({"gpus": 0}, "gpus is 0"),
        ({"gpus": 3, "nodes": 2}, "3 GPUs cannot spread evenly over 2 nodes"),
        ({"method": "loar"}, "method 'loar' is not one of"),
        ({"weight_dtype": "fp12"}, "weight_dtype"),
        ({"optimizer": "adamx"}, "optimizer"),
        ({"sharding": "fdsp"}, "sharding"),
        ({"attention": "flsh"}, "attention"),
        ({"offload": "disk"}, "offload"),
        ({"lora_targets": " "}, "lora_targets is empty"),
        ({"method": "qlora"}, "qlora needs a quant"),
        ({"method": "full", "quant": "nf4"}, "cannot be trained in full"),
    ],
)
def test_a_bad_set_up_is_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SizingError, match=words) as caught:
        Setup(**change)
    assert "\n" not in str(caught.value)


def test_positions_are_a_limit() -> None:
    gpt2 = MODELS["openai-community/gpt2"]
    with pytest.raises(SizingError, match="1024 positions"):
        estimate(gpt2, Setup(seq_len=2048))
    with pytest.raises(SizingError, match="1024 positions"):
        estimate(gpt2, Setup(seq_len=2048), position_stretch=8)  # a learned table has no more
    llama2 = MODELS["meta-llama/Llama-2-7b-hf"]
    with pytest.raises(SizingError, match="4096 positions"):
        estimate(llama2, Setup(seq_len=8192))
    assert estimate(llama2, Setup(seq_len=8192), position_stretch=2).gib() > 0


def test_a_method_that_the_model_cannot_take() -> None:
    flux = MODELS["black-forest-labs/FLUX.1-dev"]
    with pytest.raises(NotSupported, match="virtual tokens"):
        estimate(flux, Setup(method="prefix"))
    with pytest.raises(NotSupported, match="diffusion model"):
        estimate(flux, Setup(method="ia3"))
    with pytest.raises(SizingError, match="no module 'wqkv'"):
        estimate(LLAMA_8B, Setup(lora_targets="wqkv"))


@pytest.mark.parametrize(
    ("setup", "card", "words"),
    [
        (Setup(), (False, False, True), "no BF16: use fp16 or fp32"),
        (Setup(weight_dtype="fp16"), (False, False, True), None),
        (Setup(weight_dtype="fp32", autocast=True), (False, False, True), "no BF16"),
        (Setup(weight_dtype="fp8", compute_dtype="fp8"), (True, False, True), "no FP8"),
        (Setup(weight_dtype="fp8", compute_dtype="fp8"), (True, True, True), None),
        (
            Setup(method="qlora", quant="int8", weight_dtype="fp16"),
            (False, False, False),
            "no INT8",
        ),
    ],
)
def test_precision_that_a_card_has_not(
    setup: Setup, card: tuple[bool, bool, bool], words: str | None
) -> None:
    reason = check_precision(setup, "T4", *card)
    assert (reason is None) if words is None else (reason is not None and words in reason)
