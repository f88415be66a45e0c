"""Facts that people keep, each row with its source: one CSV per seed, and how to read and check it.

No database and no network. A seed is UTF-8 with LF line ends, a header, and rows sorted by key.
Every value is text here; an empty cell means *not known*, never zero. Where the facts come from,
under which licence, and what was checked how: docs/data-sources.md.

GPU identity is data, and the rule that applies it is `normalize_label` and `resolve_gpu`: staging
SQL applies the same rule. A label that no alias names stays unknown; it is never guessed.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from importlib import resources
from typing import Final

Row = dict[str, str]


class SeedError(ValueError):
    """A seed is missing, malformed, or contradicts itself or another seed."""


KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpus": ("gpu",),
    "gpu_aliases": ("label_norm", "provider", "memory_gib_min", "memory_gib_max"),
    "models": ("hf_id",),
    "jobs": ("job",),
    "provider_terms": (
        "provider", "term", "market", "tier", "sku_like", "region_like", "from_tier_gb", "status",
        "value", "source_url", "source_date", "applies_to",
    ),
    "fx_rates": ("rate_date", "currency"),
    "providers": ("provider",),
    "regions": ("provider", "region"),
    "spot_priors": ("provider",),
    "baseline_offers": (
        "provider", "scope", "sku", "region", "zone", "market", "tier", "commitment_months",
    ),
}  # fmt: skip
"""Seed -> the columns that no two of its rows share."""

SOURCE_COLUMN: Final[Mapping[str, str]] = {
    "gpus": "source_url",
    "gpu_aliases": "source",
    "models": "source",
    "jobs": "source",
    "provider_terms": "source_url",
    "fx_rates": "source_url",
    "providers": "pricing_url",
    "regions": "source",
    "spot_priors": "source_url",
    "baseline_offers": "source_url",
}
"""Seed -> the column that says where a row comes from; never empty."""

TERMS: Final[Mapping[str, str]] = {
    # time
    "billing_increment_seconds": "seconds",
    "billing_minimum_seconds": "seconds",
    "minimum_applies": "per_start|once",
    "minimum_rental_hours": "hours",
    "commitment_required": "true|false",
    # stopping
    "stop_behaviour": "storage_only|full_rate|double_storage|terminates|free",
    "storage_survives_stop": "true|false",
    # storage
    "included_disk_gb": "GB",
    "storage_price_per_gb_month": "money",
    "stopped_storage_price_per_gb_month": "money",
    "network_storage_price_per_gb_month": "money",
    "object_storage_price_per_gb_month": "money",
    "object_storage_minimum_per_month": "money",
    "persistent_storage": "true|false",
    # traffic
    "egress_price_per_gb": "money",
    "egress_free_gb_per_month": "GB",
    "ingress_price_per_gb": "money",
    "nat_price_per_gb": "money",
    "nat_price_per_hour": "money",
    # spot
    "spot_offered": "true|false",
    "spot_notice_seconds": "seconds",
    "spot_max_lifetime_hours": "hours",
    # access and network
    "ssh_access": "true|false",
    "docker_access": "true|false",
    "jupyter_access": "true|false",
    "machine_kind": "vm|container|bare_metal|kubernetes",
    "gpu_interconnect": "text",
    "multi_node_fabric": "text",
    "multi_node_gbit_per_second": "Gbit/s",
}
"""The closed vocabulary of provider terms -> its unit, or its allowed values parted by `|`."""

BILLING_MARKETS: Final = frozenset({"", "on_demand", "spot", "reserved", "capacity_block"})
METHODS: Final = frozenset({"full", "lora", "qlora", "adapter", "prefix"})

MEMORY_TOLERANCE: Final = 0.12
"""How far a stated memory may lie from a card's nominal one. Sellers print GB or GiB (7.4 % apart),
with or without ECC (T4: 15 of 16), and B300 as 262 to 288; a slice or another variant of the same
name is at least 15 % away (H100 80 and 94, RTX 3080 10 and 12)."""

# "80GB" in "A100-80GB", "48 gb" in "RTX A6000 48 gb", "sxm80gb"; not the 10 of "A10G"
_WITH_UNIT: Final = re.compile(r"(?<![0-9.])([0-9]{1,3})\s*gi?b(?![a-z0-9])")
# "80G" in "A100-80G-PCIe": a bare G counts only between separators
_BARE_G: Final = re.compile(r"(?<![a-z0-9.])([0-9]{1,3})\s*g(?![a-z0-9])")
# vendor and brand words that some sellers print and some leave out; "quadro" stays, because
# Quadro RTX 6000, RTX 6000 Ada and RTX PRO 6000 are three cards
_WORDS: Final = re.compile(
    r"(?<![a-z0-9])(?:nvidia|amd|intel|tesla|geforce|instinct|gpu)(?![a-z0-9])"
)
_NOT_ALNUM: Final = re.compile(r"[^a-z0-9]")


def normalize_label(label: str) -> tuple[str, int | None]:
    """Reduce a provider's GPU name to a comparable form, and its memory in GiB when it names one.

    In this order: lower case; memory tokens (`80gb`, `80 GiB`, and a bare `80g` between
    separators) are taken out; the words nvidia, amd, intel, tesla, geforce, instinct and gpu are
    taken out; everything but a-z and 0-9 is dropped. Two memory tokens that differ name none: one
    of them is a total.

    Args:
        label: the provider's name, verbatim.

    Returns:
        The form that `gpu_aliases.label_norm` holds, and GiB or None.

    >>> normalize_label("NVIDIA A100-SXM4-80GB")
    ('a100sxm4', 80)
    >>> normalize_label("A10G"), normalize_label("Tesla T4")
    (('a10g', None), ('t4', None))
    """
    text = label.lower()
    found = {int(size) for pattern in (_WITH_UNIT, _BARE_G) for size in pattern.findall(text)}
    text = _BARE_G.sub(" ", _WITH_UNIT.sub(" ", text))
    norm = _NOT_ALNUM.sub("", _WORDS.sub(" ", text))
    return norm, found.pop() if len(found) == 1 else None


def resolve_gpu(label: str, memory_gib: float | None = None, provider: str = "") -> str | None:
    """Name the card in `gpus` that a provider's label means, or None: unknown stays unknown.

    An alias matches when its `label_norm` equals the label's, its `provider` is this one or empty,
    and, where it has bounds, the memory is known and within them. The memory is the stated one,
    or else the label's own token. An alias without bounds names a card that exists in one size
    only: there a known memory must lie within `MEMORY_TOLERANCE` of the card's, or the thing is
    a slice or another card. A provider's own alias comes before one that holds for any.

    Args:
        label: the provider's name of the GPU, verbatim.
        memory_gib: memory of one GPU, when the offer states it.
        provider: slug of the seller.
    """
    norm, in_label = normalize_label(label)
    memory = memory_gib if memory_gib is not None else in_label
    for owner in (provider, "") if provider else ("",):
        for alias in _aliases().get((norm, owner), ()):
            if _memory_fits(alias, memory):
                return alias["gpu"]
    return None


def _memory_fits(alias: Row, memory_gib: float | None) -> bool:
    if alias["memory_gib_min"]:
        low, high = float(alias["memory_gib_min"]), float(alias["memory_gib_max"])
        return memory_gib is not None and low <= memory_gib <= high
    nominal = _vram_gb()[alias["gpu"]]
    return memory_gib is None or abs(memory_gib - nominal) <= MEMORY_TOLERANCE * nominal


@lru_cache(maxsize=1)
def _aliases() -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in load("gpu_aliases"):
        found.setdefault((row["label_norm"], row["provider"]), []).append(row)
    return found


@lru_cache(maxsize=1)
def _vram_gb() -> dict[str, float]:
    return {row["gpu"]: float(row["vram_gb"]) for row in load("gpus")}


def load(name: str) -> list[Row]:
    """Read the seed `name`: one dict per row, column -> text, in file order.

    Raises:
        SeedError: there is no such seed, or a row has more or fewer cells than the header.
    """
    if name not in KEYS:
        raise SeedError(f"no seed {name!r}; there are {', '.join(sorted(KEYS))}")
    text = resources.files(__package__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    header = next(reader, [])
    rows = []
    for number, cells in enumerate(reader, start=2):
        if len(cells) != len(header):
            raise SeedError(f"{name}.csv line {number}: {len(cells)} cells, header {len(header)}")
        rows.append(dict(zip(header, cells, strict=True)))
    return rows


def problems(name: str, rows: Sequence[Row] | None = None) -> list[str]:
    """List what is wrong with a seed, one line each; an empty list means sound.

    Args:
        name: the seed.
        rows: its rows; read from the package when left out.

    Raises:
        SeedError: there is no such seed, or it cannot be read.
    """
    rows = load(name) if rows is None else rows
    found = list(_shape_problems(name, rows))
    if not found:
        found += _CHECKS[name](rows)
    return [f"{name}.csv: {text}" for text in found]


def validate(names: Iterable[str] = KEYS) -> None:
    """Raise when any of the seeds is unsound.

    Raises:
        SeedError: names every problem, one a line.
    """
    found = [text for name in names for text in problems(name)]
    if found:
        raise SeedError("\n".join(found))


def _shape_problems(name: str, rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        yield "no rows"
        return
    missing = [c for c in (*KEYS[name], SOURCE_COLUMN[name]) if c not in rows[0]]
    if missing:
        yield f"no column {', '.join(missing)}"
        return
    keys = [tuple(row[c] for c in KEYS[name]) for row in rows]
    for key, count in Counter(keys).items():
        if count > 1:
            yield f"{count} rows for {key}"
    for row, key in zip(rows, keys, strict=True):
        if not row[SOURCE_COLUMN[name]].strip():
            yield f"{key}: no source"
        for column, value in row.items():
            if value != value.strip() or "\n" in value:
                yield f"{key}: {column} is not one trimmed line"


def _number(row: Row, column: str) -> Decimal | None:
    try:
        return Decimal(row[column]) if row[column] else None
    except InvalidOperation:
        return None


def _not_numbers(rows: Sequence[Row], columns: Iterable[str], key: str) -> Iterator[str]:
    for row in rows:
        for column in columns:
            value = _number(row, column)
            if row[column] and (value is None or not value.is_finite() or value < 0):
                yield f"{row[key]}: {column} {row[column]!r} is not a number of at least 0"


_GPU_NUMBERS: Final = (
    "vram_gb", "vram_gib_usable", "mem_bandwidth_gbps", "bf16_dense_tflops", "fp16_dense_tflops",
    "fp8_dense_tflops", "int8_dense_tops", "fp32_tflops", "interconnect_gbps_total_bidir_per_gpu",
    "tdp_watts", "released_year",
)  # fmt: skip


def _gpu_problems(rows: Sequence[Row]) -> Iterator[str]:
    yield from _not_numbers(rows, _GPU_NUMBERS, "gpu")
    for row in rows:
        gpu = row["gpu"]
        vram, usable = _number(row, "vram_gb"), _number(row, "vram_gib_usable")
        half = _number(row, "fp16_dense_tflops") or _number(row, "bf16_dense_tflops")
        fp8 = _number(row, "fp8_dense_tflops")
        if vram is None or usable is None or not 0 < usable <= vram:
            yield f"{gpu}: usable memory is not within its nominal memory"
        if not _number(row, "mem_bandwidth_gbps"):
            yield f"{gpu}: no memory bandwidth"
        if half is None:
            yield f"{gpu}: neither BF16 nor FP16 rate"
        elif fp8 is not None and not Decimal("1.9") <= fp8 / half <= Decimal("2.1"):
            # one of the two is a sparse figure, or with another accumulator
            yield f"{gpu}: FP8 {fp8} is not twice the 16-bit rate {half}"
        if (row["bf16_supported"] == "yes") != bool(row["bf16_dense_tflops"]):
            yield f"{gpu}: bf16_supported and bf16_dense_tflops disagree"
        for column in ("bf16_supported", "int8_tensor", "int4_tensor", "fp4_tensor"):
            if row[column] not in ("yes", "no"):
                yield f"{gpu}: {column} is neither yes nor no"


def _alias_problems(rows: Sequence[Row]) -> Iterator[str]:
    known = _vram_gb()
    bounded: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        at = f"{row['label_norm']} ({row['provider'] or 'any'})"
        if row["gpu"] not in known:
            yield f"{at}: gpu {row['gpu']!r} is not in gpus.csv"
            continue
        if normalize_label(row["example_label"])[0] != row["label_norm"]:
            yield f"{at}: the example {row['example_label']!r} does not normalise to it"
        if bool(row["memory_gib_min"]) != bool(row["memory_gib_max"]):
            yield f"{at}: one bound of the memory without the other"
            continue
        low, high = float(row["memory_gib_min"] or 0), float(row["memory_gib_max"] or "inf")
        if low > high:
            yield f"{at}: memory bounds the wrong way round"
        spans = bounded.setdefault((row["label_norm"], row["provider"]), [])
        if any(low <= other_high and other_low <= high for other_low, other_high in spans):
            yield f"{at}: two rows match the same memory"
        spans.append((low, high))


def _model_problems(rows: Sequence[Row]) -> Iterator[str]:
    yield from _not_numbers(rows, ("params_total", "params_active", "hidden_size"), "hf_id")
    for row in rows:
        total, active = _number(row, "params_total"), _number(row, "params_active")
        if not total or not active or active > total:
            yield f"{row['hf_id']}: active parameters are not within the total"


def _job_problems(rows: Sequence[Row]) -> Iterator[str]:
    models = {row["hf_id"] for row in load("models")}
    whole = ("tokens", "seq_len", "sessions")
    yield from _not_numbers(rows, (*whole, "dataset_gb", "keep_days", "idle_hours"), "job")
    for row in rows:
        job = row["job"]
        if row["model"] not in models:
            yield f"{job}: model {row['model']!r} is not in models.csv"
        if row["method"] not in METHODS:
            yield f"{job}: method {row['method']!r} is not one of {', '.join(sorted(METHODS))}"
        for column in whole:
            if not row[column].isdecimal() or int(row[column]) < 1:
                yield f"{job}: {column} {row[column]!r} is not a whole number of at least 1"
        if (row["method"] == "qlora") != (row["quant"] not in ("", "none")):
            yield f"{job}: quant {row['quant']!r} does not go with {row['method']}"


def _term_problems(rows: Sequence[Row]) -> Iterator[str]:
    adopted: Counter[tuple[str, ...]] = Counter()
    currencies = {row["currency"] for row in load("fx_rates")} | {"EUR"}
    for row in rows:
        at = f"{row['provider']} {row['term']}"
        if row["status"] == "adopted":
            adopted[tuple(row[c] for c in KEYS["provider_terms"][:7])] += 1
        elif row["status"] != "superseded":
            yield f"{at}: status {row['status']!r}"
        elif not row["reason"]:
            yield f"{at}: superseded without a reason"
        if row["market"] not in BILLING_MARKETS:
            yield f"{at}: market {row['market']!r}"
        unit = TERMS.get(row["term"])
        if unit is None:
            yield f"{at}: not in the vocabulary"
        elif not row["value"]:
            yield f"{at}: no value"
        elif "|" in unit:
            if row["value"] not in unit.split("|"):
                yield f"{at}: value {row['value']!r} is not one of {unit}"
        elif unit != "text":
            value = _number(row, "value")
            if value is None or not value.is_finite() or value < 0:
                yield f"{at}: value {row['value']!r} is not a number of at least 0"
        if unit == "money" and row["currency"] not in currencies:
            yield f"{at}: currency {row['currency']!r} has no rate in fx_rates.csv"
    for key, count in adopted.items():
        if count > 1:
            yield f"{count} adopted rows for {key}"


def _fx_problems(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        rate = _number(row, "units_per_eur")
        if rate is None or not rate.is_finite() or rate <= 0:
            yield f"{row['currency']}: rate {row['units_per_eur']!r} is not positive"
        try:
            date.fromisoformat(row["rate_date"])
        except ValueError:
            yield f"{row['currency']}: date {row['rate_date']!r}"
    if len({row["rate_date"] for row in rows}) > 1:
        yield "more than one date"


def _provider_problems(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row["kind"] not in ("cloud", "hyperscaler", "marketplace", "aggregator"):
            yield f"{row['provider']}: kind {row['kind']!r}"


def _region_problems(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row["country"] and not re.fullmatch(r"[A-Z]{2}", row["country"]):
            yield f"{row['provider']} {row['region']}: country {row['country']!r} is not ISO 3166-1"
        if bool(row["country"]) != bool(row["continent"]):
            yield f"{row['provider']} {row['region']}: country and continent go together"


def _spot_prior_problems(rows: Sequence[Row]) -> Iterator[str]:
    columns = (
        "interruptions_per_hour_low",
        "interruptions_per_hour",
        "interruptions_per_hour_high",
    )
    waits = ("wait_hours_low", "wait_hours", "wait_hours_high")
    yield from _not_numbers(rows, (*columns, *waits), "provider")
    for row in rows:
        for names in (columns, waits):
            numbers = [_number(row, column) for column in names]
            stated = [number for number in numbers if number is not None]
            if len(stated) < len(names) or stated != sorted(stated):
                yield f"{row['provider']}: {names[1]} and its ends are not three rising numbers"


def _baseline_problems(rows: Sequence[Row]) -> Iterator[str]:
    providers = {row["provider"] for row in load("providers")}
    currencies = {row["currency"] for row in load("fx_rates")} | {"EUR"}
    seen: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        at = f"{row['provider']} {row['sku']} {row['region']}"
        seen.setdefault((row["provider"], row["scope"]), set()).add(row["observed_at"])
        if row["provider"] not in providers:
            yield f"{at}: provider is not in providers.csv"
        if row["currency"] not in currencies:
            yield f"{at}: currency {row['currency']!r} has no rate in fx_rates.csv"
        if not row["source_licence"]:
            yield f"{at}: no licence"
        price = _number(row, "price_per_hour")
        if price is None or not price.is_finite() or price <= 0:
            yield f"{at}: price {row['price_per_hour']!r} is not positive"
    for (provider, scope), stamps in seen.items():
        if len(stamps) > 1:
            yield f"{provider} {scope}: observed at {len(stamps)} times; a scope is seen once"
        for stamp in stamps:
            try:
                aware = datetime.fromisoformat(stamp).tzinfo is not None
            except ValueError:
                aware = False
            if not aware:
                yield f"{provider} {scope}: observed_at {stamp!r} is not a time with a zone"


_CHECKS: Final = {
    "gpus": _gpu_problems,
    "gpu_aliases": _alias_problems,
    "models": _model_problems,
    "jobs": _job_problems,
    "provider_terms": _term_problems,
    "fx_rates": _fx_problems,
    "providers": _provider_problems,
    "regions": _region_problems,
    "spot_priors": _spot_prior_problems,
    "baseline_offers": _baseline_problems,
}
