"""A custom job from the command line: the same columns as a reference job of the seeds."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.refresh import UsageError
from warehouse import seeds
from warehouse.sizing.errors import SizingError
from warehouse.sizing.model import ModelSpec

DEFAULT_JOB = "llama-3.1-8b-qlora-10m"
CUSTOM = "custom"
# Beyond these an amount is a slip of the hand: the largest pre-training runs saw 1e14 tokens.
AT_MOST = {
    "tokens": 10**15,
    "rows": 10**12,
    "length": 10**7,
    "epochs": 10**4,
    "seq_len": 10**7,
    "lora_rank": 10**5,
    "sessions": 10**4,
    "checkpoint_minutes": 10**6,
    "dataset_gb": 10**7,
    "keep_days": 36_500,
    "idle_hours": 10**5,
}
RANKLESS = {"full", "adapter"}
MAY_BE_ZERO = {"dataset_gb", "keep_days", "idle_hours"}


def find_model(name: str, models: Mapping[str, ModelSpec]) -> str:
    """Return the id of a model: exact, in any case, or by its last part when that is unique.

    Raises:
        UsageError: no such model, with the nearest names.
    """
    wanted = name.casefold()
    for known in models:
        if known.casefold() == wanted:
            return known
    tails = [known for known in models if known.casefold().rpartition("/")[2] == wanted]
    if len(tails) == 1:
        return tails[0]
    by_tail = {known.casefold().rpartition("/")[2]: known for known in models}
    near = difflib.get_close_matches(wanted.rpartition("/")[2], by_tail, n=3, cutoff=0.3)
    hint = ", ".join(by_tail[n] for n in near)
    raise UsageError(
        f"unknown model {name!r}; did you mean {hint}? Any other model: --config FILE"
        if hint
        else f"unknown model {name!r}; `tunecost sql 'select hf_id from marts.models'` lists them,"
        " any other model: --config FILE"
    )


def find_job(name: str) -> dict[str, str]:
    """Return a reference job.

    Raises:
        UsageError: no such job, with the nearest names.
    """
    jobs = {row["job"]: row for row in seeds.load("jobs")}
    if name in jobs:
        return jobs[name]
    near = difflib.get_close_matches(name.lower(), jobs, n=3, cutoff=0.3)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise UsageError(
        f"unknown job {name!r}{hint} (`tunecost sql 'select job from marts.jobs'` lists them)"
    )


def read_config(path: Path) -> ModelSpec:
    """Read a Hugging Face config.json.

    Raises:
        UsageError: not a readable JSON object, or not a model that can be sized.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("not a JSON object")
        return ModelSpec.from_config(config)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except SizingError as error:
        raise UsageError(f"{path}: {error}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not a config.json ({error})") from error


def make_job(stated: Mapping[str, Any], base: Mapping[str, str]) -> dict[str, str]:
    """Return a job row: the base's columns, with what the user stated in their place.

    `rows`, `length` and `epochs` give the tokens where these are not stated themselves.

    Raises:
        UsageError: an amount that is not above zero, or half of what makes an amount.
    """
    for name in AT_MOST:
        if (value := stated.get(name)) is not None:
            check_amount(name, value)
    values = {k: v for k, v in stated.items() if v is not None}
    if "rows" in values or "length" in values:
        if "tokens" in values:
            raise UsageError("give --tokens, or --rows with --length (and --epochs), not both")
        if "rows" not in values or "length" not in values:
            raise UsageError("--rows and --length go together: tokens = rows x length x epochs")
        values["tokens"] = values["rows"] * values["length"] * values.get("epochs", 1)
        check_amount("tokens", values["tokens"])
        values.setdefault("seq_len", values["length"])
    elif "epochs" in values:
        raise UsageError("--epochs goes with --rows and --length; --tokens counts every epoch")
    if "tokens" in values:
        values["tokens"] = max(1, round(values["tokens"]))
    if "lora_rank" in values and (method := values.get("method", base["method"])) in RANKLESS:
        raise UsageError(f"--lora-rank does not go with --method {method}, which has no rank")
    if values.get("idle_hours") and int(values.get("sessions", base["sessions"])) < 2:
        raise UsageError("--idle-hours is the gap between sessions: give --sessions 2 or more")
    job = {name: str(values[name]) if name in values else text for name, text in base.items()}
    job["job"] = CUSTOM
    job["title"] = describe(job)
    return job


def check_amount(name: str, value: float) -> None:
    """Refuse an amount that no job has.

    Raises:
        UsageError: not a number, not above zero where it must be, or beyond reason.
    """
    option = f"--{name.replace('_', '-')}"
    if value != value:
        raise UsageError(f"{option} must be a number, not {value}")
    if value > AT_MOST[name]:
        raise UsageError(f"{option} can be {AT_MOST[name]:,} at most")
    if value < 0 and name in MAY_BE_ZERO:
        raise UsageError(f"{option} cannot be negative ({value:g})")
    if value <= 0 and name not in MAY_BE_ZERO:
        raise UsageError(f"{option} must be above 0, not {value:g}")


def describe(job: Mapping[str, str]) -> str:
    """Say in a few words what a job is."""
    method = {"full": "full fine-tuning", "lora": "LoRA", "qlora": "QLoRA"}
    name = job["model"].rpartition("/")[2]
    return f"{name}, {method.get(job['method'], job['method'])}, {count(int(job['tokens']))} tokens"


def count(number: int) -> str:
    """Write a number of tokens in words that people use: 10M, 1.5B."""
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.4g}{letter}"
    return str(number)
