"""The seeds: sound in themselves, true to each other, and honest about what they do not know."""

import collections
import csv
import gzip
import re
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from scrapers.collect import discover, replay, scopes_of
from scrapers.offer import Currency, Offer
from scrapers.pages import Page
from scrapers.providers import aws, azure, gcp
from tests.aws_lists import rows_of_pricing_page
from tests.captures import FILES, arrange
from tests.evidence import SHARED, needs_evidence
from warehouse import seeds
from warehouse.sizing.card import Card
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.plans import plan_jobs, read_job

FOLDER = Path(seeds.__file__).parent
KARPENTER_AZURE = "payloads/azure/expected/karpenter_ondemand_n_series_2026-06-18.csv"
LIVE = ("aws", "azure", "gcp", "linode", "oci", "runpod", "scaleway", "vast")


@pytest.fixture(scope="module")
def gpus() -> dict[str, seeds.Row]:
    return {row["gpu"]: row for row in seeds.load("gpus")}


@pytest.fixture(scope="module")
def jobs() -> list[seeds.Row]:
    return seeds.load("jobs")


@pytest.fixture(scope="module")
def baseline() -> list[seeds.Row]:
    return seeds.load("baseline_offers")


@pytest.mark.parametrize("name", seeds.KEYS)
def test_every_seed_is_sound(name: str) -> None:
    assert seeds.problems(name) == []


def test_validate_accepts_what_ships() -> None:
    seeds.validate()


def test_no_seed_is_left_out_of_the_checks() -> None:
    assert {path.stem for path in FOLDER.glob("*.csv")} == set(seeds.KEYS)


@pytest.mark.parametrize("name", seeds.KEYS)
def test_files_are_utf8_with_lf_and_one_final_newline(name: str) -> None:
    content = (FOLDER / f"{name}.csv").read_bytes()
    content.decode("utf-8")
    assert b"\r" not in content
    assert not content.startswith(b"\xef\xbb\xbf")
    assert content.endswith(b"\n")
    assert not content.endswith(b"\n\n")


@pytest.mark.parametrize("name", ["gpus", "jobs", "models", "providers", "fx_rates", "regions"])
def test_rows_are_sorted_by_key(name: str) -> None:
    keys = [
        tuple(row[c].lower() if name == "models" else row[c] for c in seeds.KEYS[name])
        for row in seeds.load(name)
    ]
    assert keys == sorted(keys)


def test_an_unknown_seed_names_the_known_ones() -> None:
    with pytest.raises(seeds.SeedError, match="no seed 'gpu'; there are baseline_offers, fx_rates"):
        seeds.load("gpu")


def test_a_row_with_a_missing_cell_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "providers.csv").write_text("provider,name\nx,X\ny\n")
    monkeypatch.setattr(seeds.resources, "files", lambda _: tmp_path)
    with pytest.raises(seeds.SeedError, match=r"providers\.csv line 3: 1 cells, header 2"):
        seeds.load("providers")


# ---- GPUs


@pytest.mark.parametrize(
    ("gpu", "column", "expected"),
    [  # dense figures of the makers' sheets; the sparse ones beside them are twice as high
        ("A100-80GB-SXM", "bf16_dense_tflops", 312),  # sparse 624
        ("H100-80GB-SXM", "bf16_dense_tflops", 989),  # sparse 1979
        ("H100-80GB-SXM", "fp8_dense_tflops", 1979),  # sparse 3958
        ("H100-80GB-PCIe", "bf16_dense_tflops", 756),  # sparse 1513
        ("H100-94GB-NVL", "bf16_dense_tflops", 835.5),  # the pair 1671
        ("H200-141GB-SXM", "mem_bandwidth_gbps", 4800),
        ("B200-180GB", "bf16_dense_tflops", 2250),
        ("GB200-186GB", "bf16_dense_tflops", 2500),
        ("L4-24GB", "bf16_dense_tflops", 121),  # sparse 242
        ("L40-48GB", "bf16_dense_tflops", 181),  # the L40S has twice as much
        ("L40S-48GB", "bf16_dense_tflops", 362),
        ("A10-24GB", "bf16_dense_tflops", 125),
        ("A10G-24GB", "bf16_dense_tflops", 70),  # AWS's part, not the A10
        ("RTX-3090-24GB", "bf16_dense_tflops", 71),  # FP32 accumulate; 142 with FP16
        ("RTX-4090-24GB", "bf16_dense_tflops", 165.2),
        ("RTX-A6000-48GB", "bf16_dense_tflops", 154.8),  # 38.7 without tensor cores
        ("MI300X-192GB", "bf16_dense_tflops", 1307),  # sparse 2615
        ("B300-288GB", "int8_dense_tops", 150),  # 4500 in one table is the B200's
        ("A16-16GB", "vram_gb", 16),  # a quarter of the board, never pooled
    ],
)
def test_dense_figures(gpus: dict[str, seeds.Row], gpu: str, column: str, expected: float) -> None:
    assert float(gpus[gpu][column]) == expected


@pytest.mark.parametrize(
    ("unknown", "forms"),
    [
        ("A100-40GB", ("A100-40GB-PCIe", "A100-40GB-SXM")),
        ("A100-80GB", ("A100-80GB-PCIe", "A100-80GB-SXM")),
        ("H100-80GB", ("H100-80GB-PCIe", "H100-80GB-SXM")),
        ("H200-141GB", ("H200-141GB-NVL", "H200-141GB-SXM")),
        ("V100-16GB", ("V100-16GB-PCIe", "V100-16GB-SXM")),
    ],
)
def test_a_card_of_unknown_form_promises_no_more_than_either_form(
    gpus: dict[str, seeds.Row], unknown: str, forms: tuple[str, ...]
) -> None:
    for column in (
        "vram_gib_usable",
        "mem_bandwidth_gbps",
        "bf16_dense_tflops",
        "fp16_dense_tflops",
        "fp8_dense_tflops",
        "interconnect_gbps_total_bidir_per_gpu",
    ):
        of_forms = [float(gpus[form][column]) for form in forms if gpus[form][column]]
        if of_forms:
            assert float(gpus[unknown][column]) <= min(of_forms), column
    assert not Card.from_row(gpus[unknown]).has_fast_links


def test_every_card_can_be_read_by_sizing(gpus: dict[str, seeds.Row]) -> None:
    for row in gpus.values():
        card = Card.from_row(row)
        assert card.vram_gib_usable
        assert card.bf16_dense_tflops or card.fp16_dense_tflops


def test_cards_without_bf16_say_so(gpus: dict[str, seeds.Row]) -> None:
    for gpu, row in gpus.items():
        is_old = row["architecture"] in ("Pascal", "Volta", "Turing")
        assert (row["bf16_supported"] == "no") == is_old, gpu


@needs_evidence
def test_all_facts_about_gpus_are_there(gpus: dict[str, seeds.Row]) -> None:
    with (SHARED / "facts/gpu_specs.csv").open() as lines:
        facts = {row["gpu"]: row for row in csv.DictReader(lines)}
    facts["A16-16GB"] = facts.pop("A16-64GB (4x16GB board)")
    corrected = {("A16-16GB", c) for c in ("vram_gb", "bf16_dense_tflops", "mem_bandwidth_gbps")}
    corrected |= {("B200-180GB", "mem_bandwidth_gbps")}  # 7.7 TB/s in two sources
    assert set(facts) <= set(gpus)
    for gpu, fact in facts.items():
        for column in ("vram_gb", "mem_bandwidth_gbps", "bf16_dense_tflops", "fp8_dense_tflops"):
            if fact[column] and (gpu, column) not in corrected:
                assert float(gpus[gpu][column]) == float(fact[column]), (gpu, column)


# ---- labels


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", ("a100sxm4", 80)),
        ("A100-80G-PCIe", ("a100pcie", 80)),
        ("A100 (40 GB SXM4)", ("a100sxm4", 40)),
        ("RTX A6000 48 GiB", ("rtxa6000", 48)),
        ("h100-sxm5-80gb", ("h100sxm5", 80)),
        ("A100_80GB", ("a100", 80)),
        ("Tesla V100-SXM2-16GB", ("v100sxm2", 16)),
        ("NVIDIA GeForce RTX 4090", ("rtx4090", None)),
        ("AMD Instinct MI300X OAM", ("mi300xoam", None)),
        ("Quadro RTX 6000", ("quadrortx6000", None)),  # "quadro" tells it from the other 6000s
        ("A10G", ("a10g", None)),  # the 10G is no memory
        ("T4G", ("t4g", None)),
        ("NVIDIA L40S GPU", ("l40s", None)),
        ("A100-80GB-160GB", ("a100", None)),  # one of the two is the total of the machine
        ("", ("", None)),
    ],
)
def test_labels_are_normalised(label: str, expected: tuple[str, int | None]) -> None:
    assert seeds.normalize_label(label) == expected


@pytest.mark.parametrize(
    ("label", "memory_gib", "provider", "gpu"),
    [
        ("NVIDIA A100-SXM4-80GB", None, "", "A100-80GB-SXM"),
        ("NVIDIA A100-SXM4-40GB", None, "", "A100-40GB-SXM"),
        ("A100 PCIe", 80, "", "A100-80GB-PCIe"),
        ("NVIDIA A100 80GB PCIe", None, "runpod", "A100-80GB-PCIe"),
        ("A100", 80, "", "A100-80GB"),
        ("A100", 80, "aws", "A100-80GB-SXM"),
        ("A100", 40, "gcp", "A100-40GB-SXM"),
        ("A100 SXM4", None, "", None),  # 40 or 80: never guessed
        ("A100", None, "", None),
        ("A100 (20 GB)", None, "", None),  # half a card
        ("H100", 80, "", "H100-80GB"),
        ("H100", 93.6, "", "H100-94GB-NVL"),
        ("H100", None, "", None),
        ("NVIDIA H100 80GB HBM3", None, "runpod", "H100-80GB-SXM"),
        ("H100-PCIe", 80, "scaleway", "H100-80GB-PCIe"),
        ("H100 NVL", 93.6, "vast", "H100-94GB-NVL"),
        ("H100 NVL", 80, "", None),  # a memory that no such card has
        ("H200", 141, "", "H200-141GB"),
        ("H200", 143, "runpod", "H200-141GB-SXM"),
        ("H200 NVL", 140.401, "vast", "H200-141GB-NVL"),
        ("GH200", 96, "", "GH200-96GB"),
        ("GH200", 144, "", None),  # the HBM3e variant is another card
        ("NVIDIA GH200 480GB", None, "", "GH200-96GB"),  # 480 is the memory of its CPU
        ("GB200 NVL72", 186, "", "GB200-186GB"),
        ("B200", 192, "", "B200-180GB"),  # sold as 180 or 192: one card
        ("B300", 262, "", "B300-288GB"),
        ("NVIDIA B300 SXM6 AC", 288, "runpod", "B300-288GB"),
        ("L40", None, "", "L40-48GB"),
        ("L40S", 44.703, "aws", "L40S-48GB"),
        ("A10", 24, "", "A10-24GB"),
        ("A10G", 22.352, "aws", "A10G-24GB"),
        ("A10", 4, "", None),  # a sixth of a card
        ("A40", 16, "", None),
        ("T4", 15, "", "T4-16GB"),
        ("T4g", 16, "aws", "T4G-16GB"),
        ("V100", None, "", None),
        ("V100", 32, "aws", "V100-32GB-SXM"),
        ("V100 16GB", None, "oci", "V100-16GB-SXM"),
        ("RTX 6000", None, "", None),  # three cards have this name
        ("RTX 6000", 24, "", "Quadro-RTX-6000-24GB"),
        ("RTX 6000", 48, "", "RTX-6000-Ada-48GB"),
        ("RTX6000", None, "linode", "Quadro-RTX-6000-24GB"),
        ("RTX 6000Ada", 47.99, "vast", "RTX-6000-Ada-48GB"),
        ("RTX PRO 6000 Blackwell Server Edition", 96, "azure", "RTX-PRO-6000-96GB"),
        ("RTX PRO 6000 WS", 95.6, "vast", "RTX-PRO-6000-WK-96GB"),
        ("RTX 3080", 12, "", None),  # the 12 GB card is another one
        ("MI300X", 192, "oci", "MI300X-192GB"),
        ("GX900", None, "", None),
        ("8", None, "", None),  # a shifted table column
        ("", None, "", None),
    ],
)
def test_labels_resolve_or_stay_unknown(
    label: str, memory_gib: float | None, provider: str, gpu: str | None
) -> None:
    assert seeds.resolve_gpu(label, memory_gib, provider) == gpu


def test_a_provider_alias_never_changes_the_kind_of_card() -> None:
    """What a provider's own alias names is the card of the general alias, or a form of it."""
    for row in seeds.load("gpu_aliases"):
        memory = float(row["memory_gib_min"]) if row["memory_gib_min"] else None
        general = seeds.resolve_gpu(row["example_label"], memory)
        if row["provider"] and general is not None:
            assert row["gpu"].startswith(general) or general.startswith(
                row["gpu"].rsplit("-", 1)[0]
            ), row


@needs_evidence
def test_labels_of_a_public_tracker_resolve() -> None:
    path = SHARED / "history/gpurentalprices/offers_2026-07-05_2026-08-22.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    unknown = collections.Counter(
        (row["gpu"], row["vram_gb"])
        for row in rows
        if seeds.resolve_gpu(row["gpu"], float(row["vram_gb"])) is None
    )
    assert sum(unknown.values()) <= 0.005 * len(rows), unknown
    # what is unknown there contradicts itself: a name with a memory that no such card has
    assert set(unknown) <= {
        ("a100-pcie-80", "40"), ("a100-sxm-80", "40"), ("a40", "16"), ("h100-nvl", "80"),
        ("rtx-pro-6000", "24"), ("rtx-pro-6000", "48"),
    }  # fmt: skip


# ---- models and jobs


@needs_evidence
def test_all_facts_about_models_are_there() -> None:
    with (SHARED / "facts/models.csv").open() as lines:
        facts = {row["hf_id"]: row for row in csv.DictReader(lines)}
    models = {row["hf_id"]: row for row in seeds.load("models")}
    assert set(models) == set(facts)
    for name, fact in facts.items():
        assert models[name] == {k: v for k, v in fact.items() if k not in ("licence", "gated")}


def test_jobs_cover_methods_sizes_and_precisions(jobs: list[seeds.Row]) -> None:
    assert len(jobs) >= 60
    assert {job["method"] for job in jobs} == seeds.METHODS
    params = {row["hf_id"]: int(row["params_total"]) for row in seeds.load("models")}
    sizes = sorted(params[job["model"]] for job in jobs)
    assert sizes[0] < 0.2e9
    assert sizes[-1] > 400e9
    for low, high in ((0.1, 1), (1, 4), (6, 9), (11, 16), (20, 35), (45, 80), (100, 250)):
        assert any(low * 1e9 <= size <= high * 1e9 for size in sizes), (low, high)
    assert {job["weight_dtype"] for job in jobs} == {"bf16", "fp16"}


def test_the_default_job_is_as_announced(jobs: list[seeds.Row]) -> None:
    (job,) = [job for job in jobs if job["job"] == "llama-3.1-8b-qlora-10m"]
    assert job["model"] == "meta-llama/Llama-3.1-8B"
    assert (job["method"], job["tokens"]) == ("qlora", "10000000")


def test_sizing_reads_every_job_and_finds_it_a_machine(
    jobs: list[seeds.Row], gpus: dict[str, seeds.Row]
) -> None:
    models = {row["hf_id"]: ModelSpec.from_row(row) for row in seeds.load("models")}
    cards = {gpu: Card.from_row(row) for gpu, row in gpus.items()}
    for job in jobs:
        read_job(job, models)
    machines = {
        plan["job"]: plan["nodes"]
        for plan in plan_jobs(jobs, models, cards, [("T4-16GB", 1.0), ("MI300X-192GB", 8.0)])
        if plan["fits"]
    }
    assert {job["job"] for job in jobs} == machines.keys()
    too_big = {job["job"] for job in jobs if "several 8-GPU machines" in job["note"]}
    assert all(machines[name] > 1 for name in too_big)


# ---- terms, rates, places


@pytest.mark.parametrize("provider", LIVE)
def test_terms_that_decide_the_bill_are_known_for_the_live_providers(provider: str) -> None:
    adopted = {
        row["term"]
        for row in seeds.load("provider_terms")
        if row["provider"] == provider and row["status"] == "adopted"
    }
    assert {"billing_increment_seconds", "stop_behaviour", "spot_offered", "ssh_access"} <= adopted


def test_terms_name_known_providers() -> None:
    providers = {row["provider"] for row in seeds.load("providers")}
    assert {row["provider"] for row in seeds.load("provider_terms")} <= providers
    assert {row["provider"] for row in seeds.load("regions")} <= providers


def test_statements_of_equal_weight_never_meet_on_one_machine() -> None:
    """Two adopted rows with different machine patterns must not match the same machine."""
    skus = collections.defaultdict(set)
    for row in seeds.load("baseline_offers"):
        skus[row["provider"]].add(row["sku"])
    patterns = collections.defaultdict(set)
    for row in seeds.load("provider_terms"):
        if row["status"] == "adopted" and row["sku_like"] and not row["from_tier_gb"]:
            key = (row["provider"], row["term"], row["market"], row["tier"], row["region_like"])
            patterns[key].add(row["sku_like"])

    def matches(sku: str, like: str) -> bool:
        return bool(re.fullmatch(re.escape(like).replace("%", ".*").replace("_", "."), sku))

    for key, likes in patterns.items():
        for sku in skus[key[0]]:
            assert sum(matches(sku, like) for like in likes) <= 1, (key, sku)


def test_every_currency_of_the_contract_has_a_rate() -> None:
    rates = {row["currency"]: Decimal(row["units_per_eur"]) for row in seeds.load("fx_rates")}
    assert set(rates) == set(get_args(Currency)) - {"EUR"}
    assert Decimal("0.9") < rates["USD"] < Decimal("1.5")


# ---- baseline


def offer_of(row: seeds.Row) -> Offer:
    fields = {name: row[name] for name in Offer.model_fields if row[name]}
    return Offer.model_validate_strings(fields)


def test_every_baseline_row_keeps_the_contract(baseline: list[seeds.Row]) -> None:
    header = ["provider", "scope", "observed_at", "source_url", "source_licence"]
    assert list(baseline[0]) == [*header, *Offer.model_fields]
    keys = [(row["provider"], row["scope"], *offer_of(row).key()) for row in baseline]
    assert len(set(keys)) == len(keys)


def test_baseline_is_broad_and_small(baseline: list[seeds.Row]) -> None:
    assert len(baseline) >= 1000
    assert len({row["provider"] for row in baseline}) >= 25
    assert {row["market"] for row in baseline} == {"on_demand", "spot"}
    assert (FOLDER / "baseline_offers.csv").stat().st_size < 1_000_000


def test_baseline_labels_resolve(baseline: list[seeds.Row]) -> None:
    unknown = [
        row
        for row in baseline
        if seeds.resolve_gpu(
            row["gpu_label"],
            float(row["gpu_memory_gib"]) if row["gpu_memory_gib"] else None,
            row["provider"],
        )
        is None
    ]
    assert len(unknown) <= 0.02 * len(baseline), {(r["provider"], r["gpu_label"]) for r in unknown}


@pytest.mark.parametrize("slug", LIVE)
def test_baseline_scopes_are_those_that_live_data_replaces(
    slug: str, baseline: list[seeds.Row]
) -> None:
    source = import_module(f"scrapers.providers.{slug}")
    scopes = {row["scope"] for row in baseline if row["provider"] == slug}
    assert scopes
    assert scopes <= set(scopes_of(source.REQUESTS))


def test_baseline_prices_are_of_the_whole_machine_and_plausible(
    baseline: list[seeds.Row], gpus: dict[str, seeds.Row]
) -> None:
    """Per GPU taken for per machine, cents for dollars and months for hours all leave this band."""
    per_gpu = collections.defaultdict(list)
    per_euro = {row["currency"]: float(row["units_per_eur"]) for row in seeds.load("fx_rates")}
    usd = {currency: per_euro["USD"] / rate for currency, rate in per_euro.items()} | {
        "EUR": per_euro["USD"]
    }
    for row in baseline:
        memory = float(row["gpu_memory_gib"]) if row["gpu_memory_gib"] else None
        gpu = seeds.resolve_gpu(row["gpu_label"], memory, row["provider"])
        price = float(row["price_per_hour"]) / float(row["gpu_count"]) * usd[row["currency"]]
        assert 0.03 < price < 60, row  # the dearest: a GB200 in Brazil
        # cards older than Ampere are cleared out at a twentieth of what others still ask
        if gpu and row["market"] == "on_demand" and int(gpus[gpu]["released_year"]) >= 2020:
            per_gpu[gpus[gpu]["vram_gb"], gpus[gpu]["architecture"]].append(price)
    for kind, prices in per_gpu.items():
        middle = sorted(prices)[len(prices) // 2]
        assert max(prices) < 8 * middle, kind
        # an RTX A5000 of a small seller stands beside A10s in the large machines of a big cloud
        assert min(prices) > middle / 30, kind


def test_baseline_regions_are_located(baseline: list[seeds.Row]) -> None:
    placed = {(row["provider"], row["region"]) for row in seeds.load("regions")}
    asked = {(r["provider"], r["region"]) for r in baseline if r["region"] != "global"}
    assert asked <= placed


@needs_evidence
def test_regions_of_captures_and_modules_are_located(tmp_path: Path) -> None:
    placed = {(row["provider"], row["region"]) for row in seeds.load("regions")}
    asked = {("aws", region) for region in aws.REGIONS}
    asked |= {("gcp", region) for machine in gcp.MACHINES.values() for region in machine.regions}
    with (SHARED / KARPENTER_AZURE).open(newline="") as lines:
        asked |= {("azure", row["armRegionName"]) for row in csv.DictReader(lines)}
    sources, folder = discover(), arrange(tmp_path / "replay")
    for slug in FILES:
        for outcome in replay(sources[slug], folder / slug):
            asked |= {(slug, offer.region) for offer in outcome.offers}
    print(f"{len(asked)} regions of {len(FILES)} modules")
    assert {where for where in asked - placed if where[1] not in ("global", "unknown")} == set()


def test_a_place_is_said_in_one_vocabulary() -> None:
    groups = {
        "Africa": {"africa"},
        "Asia": {"asia_pacific", "middle_east"},
        "Europe": {"eea", "europe_other"},
        "North America": {"north_america", "latin_america"},
        "Oceania": {"asia_pacific"},
        "South America": {"latin_america"},
    }
    countries: dict[str, set[tuple[str, str]]] = collections.defaultdict(set)
    for row in seeds.load("regions"):
        if not row["country"]:
            assert row["city"] == row["continent"] == row["region_group"] == "", row
            continue
        assert row["region_group"] in groups[row["continent"]], row
        assert row["source"].startswith("https://"), row
        countries[row["country"]].add((row["continent"], row["region_group"]))
    assert {country: said for country, said in countries.items() if len(said) > 1} == {}


@needs_evidence
def test_baseline_prices_equal_independent_figures(baseline: list[seeds.Row]) -> None:
    """Tables of a cluster autoscaler, against the API's own answer and the provider's page."""
    ours = {
        (row["provider"], row["sku"], row["region"]): Decimal(row["price_per_hour"])
        for row in baseline
        if row["market"] == "on_demand"
    }
    answer = SHARED / "payloads/azure/retail_prices_gpu_2026-09.json"
    pages = {"vm_prices": [Page(name="vm_prices", path=answer)]}
    stated = {
        ("azure", row.sku, row.region): row.price_per_hour
        for row in azure.parse(pages)
        if isinstance(row, Offer) and row.market == "on_demand"
    }
    for (region, sku), row in rows_of_pricing_page().items():
        if region == "us-east-1":
            stated["aws", sku, region] = Decimal(row["price"])
    both = stated.keys() & ours.keys()
    counts = collections.Counter(provider for provider, _, _ in both)
    print(f"baseline prices equal to another source's: {dict(counts)}")
    assert counts == {"aws": 10, "azure": 31}
    assert {key: ours[key] for key in both} == {key: stated[key] for key in both}


# ---- the checks themselves


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("gpus", {"source_url": ""}, "no source"),
        ("gpus", {"fp16_dense_tflops": "624"}, "not twice the 16-bit rate"),
        ("gpus", {"vram_gib_usable": "999"}, "usable memory"),
        ("gpus", {"vram_gb": "80 "}, "not one trimmed line"),
        ("gpus", {"mem_bandwidth_gbps": "NaN"}, "not a number"),
        ("gpus", {"bf16_supported": "no"}, "disagree"),
        ("gpu_aliases", {"gpu": "GX900"}, "not in gpus.csv"),
        ("gpu_aliases", {"memory_gib_max": ""}, "one bound"),
        ("gpu_aliases", {"example_label": "something else"}, "does not normalise"),
        ("models", {"params_active": "9999999999999"}, "not within the total"),
        ("jobs", {"model": "nobody/nothing"}, "not in models.csv"),
        ("jobs", {"method": "magic"}, "not one of adapter"),
        ("jobs", {"tokens": "-5"}, "not a number of at least 0"),
        ("jobs", {"tokens": "1e7"}, "not a whole number"),
        ("jobs", {"quant": "none"}, "does not go with"),
        ("provider_terms", {"term": "colour"}, "not in the vocabulary"),
        ("provider_terms", {"value": "blue"}, "not a number"),
        ("provider_terms", {"status": "superseded", "reason": ""}, "without a reason"),
        ("provider_terms", {"status": "maybe"}, "status 'maybe'"),
        ("provider_terms", {"market": "auction"}, "market 'auction'"),
        ("fx_rates", {"units_per_eur": "0"}, "not positive"),
        ("fx_rates", {"rate_date": "yesterday"}, "date 'yesterday'"),
        ("providers", {"kind": "shop"}, "kind 'shop'"),
        ("regions", {"country": "Germany"}, "not ISO 3166-1"),
        ("spot_priors", {"interruptions_per_hour_low": "9"}, "not three rising numbers"),
        ("baseline_offers", {"price_per_hour": "0"}, "not positive"),
        ("baseline_offers", {"observed_at": "2026-08-01T00:00:00"}, "observed at"),
        ("baseline_offers", {"provider": "nobody"}, "not in providers.csv"),
        ("baseline_offers", {"currency": "XXX"}, "no rate"),
        ("baseline_offers", {"source_licence": ""}, "no licence"),
    ],
)
def test_a_wrong_row_is_named(name: str, change: dict[str, str], message: str) -> None:
    rows = seeds.load(name)
    pick = {
        "gpus": lambda row: row["gpu"] == "H100-80GB-SXM",
        "gpu_aliases": lambda row: row["memory_gib_min"] and not row["provider"],
        "jobs": lambda row: row["method"] == "qlora",
        "provider_terms": lambda row: (
            row["term"] == "billing_increment_seconds" and row["status"] == "adopted"
        ),
        "regions": lambda row: row["country"] == "DE",
    }.get(name, lambda row: True)
    index = next(i for i, row in enumerate(rows) if pick(row))
    rows[index] = rows[index] | change
    assert any(message in text for text in seeds.problems(name, rows)), seeds.problems(name, rows)


@pytest.mark.parametrize("name", seeds.KEYS)
def test_a_repeated_key_is_named(name: str) -> None:
    rows = seeds.load(name)
    assert any("2 rows for" in text for text in seeds.problems(name, [*rows, rows[0]]))


def test_two_adopted_statements_about_the_same_thing_are_named() -> None:
    rows = seeds.load("provider_terms")
    index = next(i for i, row in enumerate(rows) if row["term"] == "billing_increment_seconds")
    rival = rows[index] | {"value": "7", "status": "adopted"}
    assert any(
        "2 adopted rows" in text for text in seeds.problems("provider_terms", [*rows, rival])
    )


def test_a_seed_without_rows_or_columns_is_named() -> None:
    assert seeds.problems("gpus", []) == ["gpus.csv: no rows"]
    assert seeds.problems("gpus", [{"gpu": "X"}]) == ["gpus.csv: no column source_url"]


def test_validate_names_every_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "load", lambda _: [])
    with pytest.raises(seeds.SeedError, match=r"providers\.csv: no rows\nfx_rates\.csv: no rows"):
        seeds.validate(("providers", "fx_rates"))
