"""What a user types, and what comes back: streams, formats, exit codes, one-line errors."""

import csv
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from flows.cli import app
from tests.conftest import lay_replay
from warehouse.reader import open_published


def run(*arguments: str, data: Path | None = None) -> Result:
    environ = {"TUNECOST_DATA": str(data)} if data else {}
    return CliRunner().invoke(app, list(arguments), env=environ)


def ok(*arguments: str, data: Path | None = None) -> str:
    result = run(*arguments, data=data)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


COST_KEYS = {
    "provider", "region", "sku", "market", "gpu", "gpu_count", "hours_low", "hours", "hours_high",
    "cost_usd_low", "cost_usd", "cost_usd_high", "compute_usd", "spot_rework_usd", "storage_usd",
    "transfer_usd", "observed_at", "age_hours", "source",
}  # fmt: skip


def test_cost_as_json_is_ranked_and_complete(filled: Path) -> None:
    rows = json.loads(ok("cost", "--format", "json", data=filled))
    assert len(rows) > 200
    assert rows[0].keys() >= COST_KEYS
    costs = [row["cost_usd"] for row in rows]
    assert costs == sorted(costs)
    for row in rows:
        assert row["cost_usd_low"] <= row["cost_usd"] <= row["cost_usd_high"]
        assert row["observed_at"].endswith("Z")
        assert row["source"].startswith("https://")
        assert row["age_hours"] > 0
        # An interruption clears a machine's own disk: checkpoints are paid for elsewhere.
        assert row["market"] != "spot" or row["disk_gb_months"] > 0


def test_cost_as_csv_has_the_same_rows(filled: Path) -> None:
    as_json = json.loads(ok("cost", "--format", "json", data=filled))
    as_csv = rows_of(ok("cost", "--format", "csv", data=filled))
    assert [r["offer_id"] for r in as_csv] == [r["offer_id"] for r in as_json]


def test_cost_as_table_says_what_is_assumed_and_how_old_the_price_is(filled: Path) -> None:
    text = ok("cost", data=filled)
    assert "Llama-3.1-8B, QLoRA, 10M tokens" in text
    assert "baseline" in text
    assert "assumed (not stated)" in text


@pytest.mark.parametrize(
    ("arguments", "check"),
    [
        (["--provider", "azure"], lambda r: r["provider"] == "azure"),
        (["--market", "spot"], lambda r: r["market"] == "spot"),
        (["--gpu", "h100-80gb-sxm"], lambda r: r["gpu"] == "H100-80GB-SXM"),
        (["--gpu", "A100"], lambda r: r["gpu"].startswith("A100-")),
        (["--country", "FR"], lambda r: r["country"] == "FR"),
        (["--max-hours", "2"], lambda r: r["hours"] <= 2),
        (["--needs", "ssh"], lambda r: r["has_ssh"] is True),
        (
            ["--needs", "nvlink", "--model", "Llama-3.1-70B", "--method", "lora"],
            lambda r: (
                r["gpu_count"] <= 1
                or ("NV" in r["interconnect"] and "bridge" not in r["interconnect"])
            ),
        ),
        (
            ["--sessions", "3", "--idle-hours", "4", "--max-hours", "12"],
            lambda r: r["hours"] + 8 <= 12,
        ),
        (["--limit", "3"], lambda r: True),
    ],
)
def test_filters_keep_only_what_they_say(filled: Path, arguments: list[str], check: Any) -> None:
    rows = json.loads(ok("cost", "--format", "json", *arguments, data=filled))
    assert rows
    assert all(check(row) for row in rows)
    if arguments[0] == "--limit":
        assert len(rows) == 3


def test_a_custom_job_costs_in_proportion_to_its_tokens(filled: Path) -> None:
    def best(tokens: str) -> float:
        arguments = ["cost", "--model", "Qwen2.5-7B", "--method", "lora", "--tokens", tokens]
        return float(json.loads(ok(*arguments, "--format", "json", data=filled))[0]["compute_usd"])

    assert 5 < best("1e9") / best("1e8") < 15


def test_rows_times_length_times_epochs_are_tokens(filled: Path) -> None:
    by_rows = ok("cost", "--model", "Qwen2.5-7B", "--method", "lora", "--rows", "1000",
                 "--length", "2048", "--epochs", "2", "--limit", "1", data=filled)  # fmt: skip
    assert "4.096M tokens" in by_rows


def test_a_bill_is_explained_line_by_line(filled: Path) -> None:
    rows = json.loads(ok("cost", "--format", "json", data=filled))
    for market in ("on_demand", "spot"):
        row = next(r for r in rows if r["market"] == market)
        lines = json.loads(
            ok("cost", "--explain", row["offer_id"], "--format", "json", data=filled)
        )
        items = {line["item"]: line for line in lines}
        parts = [i for i in items if i not in ("likely cost", "spot rework")]
        parts += ["spot rework"] if market == "spot" else []
        total = sum(items[part]["usd"] or 0 for part in parts)
        assert total == pytest.approx(items["likely cost"]["usd"])
        assert items["likely cost"]["usd"] == pytest.approx(row["cost_usd"])
        assert items["compute"]["source"].startswith("https://")
        assert items["compute"]["seen"] == row["observed_at"][:10]


def test_a_converted_price_names_the_day_of_its_rate(filled: Path) -> None:
    with open_published(filled) as connection:
        rates = connection.execute("select currency, rate_date from staging.fx_latest").fetchall()
    rows = json.loads(ok("cost", "--provider", "scaleway", "--format", "json", data=filled))
    arguments = ("cost", "--explain", rows[0]["offer_id"], "--format", "json")
    compute = json.loads(ok(*arguments, data=filled))[0]["how"]
    quoted = f"{rows[0]['price_per_hour']:.9f}".rstrip("0") + " EUR/h"
    in_usd = f"({rows[0]['price_usd_per_hour']:.4f} USD at the rate of {dict(rates)['EUR']})"
    assert f"{quoted} {in_usd}" in compute


def test_a_bill_of_sessions_tells_where_the_data_lay(filled: Path) -> None:
    job = ("--sessions", "2", "--idle-hours", "10", "--keep-days", "30")
    rows = json.loads(ok("cost", *job, "--format", "json", data=filled))
    stopped = {r["provider"]: r for r in rows if r["stopped_gb_months"] > 0 and r["storage_usd"]}
    assert len(stopped) >= 3
    for row in stopped.values():
        bill = ok("cost", *job, "--explain", row["offer_id"], "--format", "json", data=filled)
        lines = json.loads(bill)
        items = {line["item"]: line for line in lines}
        for item in ("storage", "storage stopped", "storage kept"):
            volume, price = items[item]["how"].split(" GB-months x ")
            amount = float(volume) * float(price.split(" ")[0])
            assert items[item]["usd"] == pytest.approx(amount, abs=0.01, rel=0.01)
            assert items[item]["source"].startswith("https://")
        amounts = [line["usd"] or 0 for line in lines[:-1]]
        assert sum(amounts) == pytest.approx(items["likely cost"]["usd"])


def test_a_nat_gateway_is_a_line_of_its_own(filled: Path) -> None:
    def cheapest(*more: str) -> dict[str, Any]:
        text = ok("cost", "--provider", "aws", "--format", "json", *more, data=filled)
        row: dict[str, Any] = json.loads(text)[0]
        return row

    row = cheapest("--behind-nat")
    assert cheapest()["nat_usd"] == 0
    # All that comes in and goes out, and the started hours, at the prices of the terms.
    expected = (row["ingress_gb"] + row["egress_gb"] + row["nat_hours"]) * 0.045
    assert row["nat_usd"] == pytest.approx(expected)
    bill = json.loads(
        ok("cost", "--behind-nat", "--explain", row["offer_id"], "--format", "json", data=filled)
    )
    items = {line["item"]: line for line in bill}
    assert items["NAT traffic"]["usd"] + items["NAT hours"]["usd"] == pytest.approx(expected)
    for item in ("NAT traffic", "NAT hours"):
        assert items[item]["source"].startswith("https://")
    assert sum(line["usd"] or 0 for line in bill[:-1]) == pytest.approx(row["cost_usd"])


def test_a_deadline_counts_the_gaps_between_sessions(filled: Path) -> None:
    job = ("cost", "--sessions", "3", "--idle-hours", "10", "--format", "json")
    rows = json.loads(ok(*job, "--deadline-hours", "22", data=filled))
    assert rows
    assert all(row["idle_hours"] == 20 and row["hours"] <= 2 for row in rows)
    # What is left of the 22 hours decides, not the 22.
    close = [r for r in rows if r["market"] == "on_demand" and r["hours_high"] > 2]
    assert close
    assert all(0 < row["finish_probability"] < 1 for row in close)
    assert run(*job, "--deadline-hours", "20", data=filled).exit_code == 2


@pytest.mark.parametrize("method", ["full", "lora", "adapter", "prefix"])
def test_a_method_alone_means_the_reference_job_of_that_method(filled: Path, method: str) -> None:
    tokens = {"full": "10m", "lora": "10m", "adapter": "50m", "prefix": "20m"}[method]
    named = ["cost", "--job", f"llama-3.1-8b-{method}-{tokens}"]
    asked = ["cost", "--method", method, "--tokens", tokens.replace("m", "e6"),
             "--dataset-gb", {"10m": "0.04", "20m": "0.08", "50m": "0.2"}[tokens]]  # fmt: skip
    rows = [json.loads(ok(*c, "--format", "json", data=filled)) for c in (named, asked)]
    best = [[(r["offer_id"], round(r["cost_usd"], 9)) for r in some[:5]] for some in rows]
    assert best[0] == best[1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select 1 as a, 2 as a, 3 as A_1", [{"a": 1, "a_1": 2, "A_1": 3}]),
        ("select 'nan'::double as x, 'inf'::double as y", [{"x": None, "y": None}]),
        ("select {'at': timestamptz '2026-01-02 03:04:05+02', 'n': [1.50::decimal(9, 2)]} as s",
         [{"s": {"at": "2026-01-02T01:04:05Z", "n": [1.5]}}]),
        ("select interval 90 minute as i, time '03:04' as t, '\\x41'::blob as b",
         [{"i": "1:30:00", "t": "03:04:00", "b": "b'A'"}]),
        ("from marts.jobs where false", []),
    ],
)  # fmt: skip
def test_any_result_can_be_printed(filled: Path, query: str, expected: Any) -> None:
    text = ok("sql", query, "--format", "json", data=filled)
    assert json.loads(text, parse_constant=pytest.fail) == expected
    ok("sql", query, data=filled)
    head = ok("sql", query, "--format", "csv", data=filled).splitlines()[0]
    assert head.split(",")[0] in {"a", "x", "s", "i", "job"}


def test_a_piped_table_folds_nothing(filled: Path) -> None:
    text = ok("sql", "select repeat('x', 900) as long, repeat('y', 900) as longer", data=filled)
    assert "x" * 900 + " " in text


def test_every_ranked_offer_can_be_explained(filled: Path) -> None:
    from flows.costs import Filters, rank
    from flows.explain import explain_bill
    from flows.jobs import DEFAULT_JOB, find_job
    from flows.refresh import load_models

    with open_published(filled) as connection:
        rows = rank(connection, find_job(DEFAULT_JOB), load_models(), Filters())
        seen = set()
        for row in rows:
            kind = (row["provider"], row["market"], row["tier"])
            if kind not in seen:
                seen.add(kind)
                lines = explain_bill(connection, row)
                amounts = [line["usd"] or 0 for line in lines[:-1]]
                assert sum(amounts) == pytest.approx(row["cost_usd"])
        assert len(seen) > 25


def test_a_deadline_drops_what_is_late_and_states_the_chance(filled: Path) -> None:
    rows = json.loads(ok("cost", "--deadline-hours", "2", "--format", "json", data=filled))
    assert all(row["hours"] <= 2 for row in rows)
    assert all(0 <= row["finish_probability"] <= 1 for row in rows)
    sure = [row for row in rows if row["market"] == "on_demand" and row["hours_high"] <= 2]
    assert sure
    assert all(row["finish_probability"] == pytest.approx(1) for row in sure)
    spot = [row for row in rows if row["market"] == "spot"]
    assert any(row["finish_probability"] < 1 for row in spot)


def test_rare_checkpoints_cost_more_on_spot(filled: Path) -> None:
    def rework(*more: str) -> float:
        rows = json.loads(
            ok("cost", "--model", "Llama-3.1-8B", "--method", "lora", "--tokens", "1e9",
               "--market", "spot", "--format", "json", *more, data=filled)
        )  # fmt: skip
        return float(sum(row["spot_rework_usd"] / row["cost_usd"] for row in rows) / len(rows))

    assert rework() < rework("--checkpoint-minutes", "240")


def test_an_unknown_model_goes_by_its_config(filled: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
                "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
                "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048,
            }
        )
    )  # fmt: skip
    rows = json.loads(
        ok("cost", "--config", str(config), "--method", "lora", "--tokens", "1e7",
           "--format", "json", data=filled)
    )  # fmt: skip
    assert rows[0]["model"] == str(config)


def test_prices_are_sorted_per_gpu_and_exact(filled: Path) -> None:
    rows = json.loads(ok("prices", "--format", "json", "--market", "on_demand", data=filled))
    per_gpu = [r["price_usd_per_gpu_hour"] for r in rows]
    assert per_gpu == sorted(per_gpu)
    assert all(r["price_per_hour"] > 0 for r in rows)


def test_history_and_as_of(filled: Path) -> None:
    rows = json.loads(ok("history", "--provider", "oci", "--format", "json", data=filled))
    assert rows
    # A time as the files state it is a time that the filters take.
    same = ["history", "--provider", "oci", "--as-of", rows[0]["valid_from"], "--format", "json"]
    assert json.loads(ok(*same, data=filled))
    assert all(row["provider"] == "oci" for row in rows)
    before = ok("history", "--as-of", "2000-01-01", "--format", "csv", data=filled)
    assert before.startswith("provider,region,")
    assert rows_of(before) == []


def test_status_and_providers(filled: Path) -> None:
    health = {r["provider"]: r for r in json.loads(ok("status", "--format", "json", data=filled))}
    assert health["azure"]["health"] == "ok"
    assert health["coreweave"]["health"] == "baseline"
    assert health["coreweave"]["age_hours"] > 24
    listed = {r["provider"]: r for r in json.loads(ok("providers", "--format", "json"))}
    assert listed["vast"]["source"] == "live"
    assert listed["coreweave"]["source"] == "baseline"
    assert (listed["gcp"]["needs_key"], listed["gcp"]["optional_key"]) == (None, "GCP_API_KEY")


def test_sql_reads_the_published_file(filled: Path) -> None:
    text = ok("sql", "select 1 as a, 'x' as b", "--format", "csv", data=filled)
    assert text == "a,b\n1,x\n"
    assert run("sql", "create table t (a int)", data=filled).exit_code == 2


def test_size_names_the_peak_and_the_smallest_card(filled: Path) -> None:
    text = ok("size", "--model", "Llama-3.1-8B", "--method", "qlora")
    assert "◀ peak" in text
    assert "Smallest that fits" in text
    result = json.loads(
        ok("size", "--model", "Llama-3.1-8B", "--method", "full", "--format", "json")
    )[0]
    assert result["smallest"]["gpus"] >= 1
    refused = {row["gpu"]: row["reason"] for row in result["cards"] if row["reason"]}
    assert "GiB per GPU" in refused["RTX-4090-24GB"]


def test_a_card_without_bf16_takes_fp16_unless_bf16_is_asked_for(filled: Path) -> None:
    def sized(*more: str) -> dict[str, Any]:
        text = ok("size", "--model", "Llama-3.1-8B", "--gpu", "T4-16GB", "--format", "json", *more)
        result: dict[str, Any] = json.loads(text)[0]
        return result

    card = sized()["cards"][0]
    assert (card["weight_dtype"], card["reason"]) == ("fp16", None)
    assert sized()["weight_dtype"] == "fp16"
    assert "no BF16" in sized("--weight-dtype", "bf16")["cards"][0]["reason"]
    # The bill goes by the same rule, and shows it.
    rows = json.loads(ok("cost", "--format", "json", data=filled))
    dtypes = {(row["gpu"].partition("-")[0], row["weight_dtype"]) for row in rows}
    assert {("V100", "fp16"), ("A100", "bf16")} <= dtypes
    assert ("V100", "bf16") not in dtypes
    lines = ok("cost", "--gpu", "V100", data=filled).splitlines()[3:]
    assert lines
    assert all(" FP16 " in line for line in lines)


def test_a_framework_brings_its_own_defaults(filled: Path) -> None:
    job = ("cost", "--model", "Llama-3.1-8B", "--method", "full", "--framework", "torchtune")
    sized = json.loads(ok("size", *job[1:], "--format", "json"))[0]
    rows = json.loads(ok(*job, "--format", "json", data=filled))
    assert {r["optimizer"] for r in rows} == {sized["optimizer"]} == {"adamw8bit"}
    # What is stated goes before it.
    stated = json.loads(ok(*job, "--optimizer", "adamw", "--format", "json", data=filled))
    assert {r["optimizer"] for r in stated} == {"adamw"}


def test_the_header_names_the_precision_of_the_job(filled: Path) -> None:
    assert "; in BF16, or FP16 where a card has none" in ok("cost", data=filled)
    assert "; in FP16\n" in ok("cost", "--job", "falcon-7b-qlora-10m", data=filled)


@pytest.mark.parametrize(
    ("which", "job", "words"),
    [
        ("provider = 'vast' and expires_at < now()", [], "the offer has ended"),
        ("gpu = 'L4-24GB'", ["--model", "Llama-3.1-70B", "--method", "full"], "needs "),
        ("gpu = 'L4-24GB' and market = 'on_demand'", ["--market", "spot"], "the filters leave it"),
        ("gpu is null", [], "its GPU is not known here"),
    ],
)
def test_why_an_offer_is_not_ranked_is_said(
    filled: Path, which: str, job: list[str], words: str
) -> None:
    with open_published(filled) as connection:
        found = connection.execute(
            f"select offer_id from staging.current_offers where {which} order by offer_id"
        ).fetchone()
    assert found
    result = run("cost", *job, "--explain", found[0], data=filled)
    assert result.exit_code == 2
    assert f"is not ranked: {words}" in result.stderr


def test_ties_are_said(filled: Path) -> None:
    rows = json.loads(ok("cost", "--format", "json", data=filled))
    tied = [r for r in rows if r["ties"]]
    assert tied
    for row in tied[:20]:
        same = [r for r in rows if round(r["cost_usd"], 4) == round(row["cost_usd"], 4)]
        assert len(same) == row["ties"] + 1
    assert "same cost" in ok("cost", data=filled)


def test_how_a_job_is_trained_can_be_chosen_and_is_shown(filled: Path) -> None:
    job = ("cost", "--model", "Llama-3.1-8B", "--method", "full", "--tokens", "1e9")
    needs = {}
    for optimizer in ("adamw", "adamw8bit"):
        asked = (*job, "--framework", "torchtune", "--optimizer", optimizer)
        assert f"torchtune defaults, {optimizer}" in ok(*asked, data=filled)
        rows = json.loads(ok(*asked, "--format", "json", data=filled))
        needs[optimizer] = min(r["vram_needed_gib"] * r["gpu_count"] * r["nodes"] for r in rows)
        assert {r["optimizer"] for r in rows} == {optimizer}
    assert needs["adamw8bit"] < needs["adamw"]


def test_size_in_bulk_keeps_going_past_bad_rows(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(
        "model,method,weight_dtype,adapter_dtype,lora_rank,lora_targets,optimizer,"
        "grad_checkpointing,attention,seq_len,micro_batch\n"
        "meta-llama/Llama-3.1-8B,lora,bf16,fp32,16,all-linear,adamw,True,flash,1024,1\n"
        "no/such-model,lora,bf16,fp32,16,all-linear,adamw,True,flash,1024,1\n"
        "meta-llama/Llama-3.1-8B,lora,bf16,fp32,0,all-linear,adamw,True,flash,1024,1\n"
        "meta-llama/Llama-3.1-8B,full,bf16,,,,adamw,False,flash,2048,2\n"
    )
    rows = rows_of(ok("size", "--jobs", str(jobs), "--format", "csv"))
    assert [bool(r["error"]) for r in rows] == [False, True, True, False]
    good = rows[0]
    assert (
        float(good["predicted_low_gib"])
        <= float(good["predicted_gib"])
        <= float(good["predicted_high_gib"])
    )
    assert float(rows[3]["predicted_gib"]) > float(good["predicted_gib"])


BAD = [
    (["cost", "--explain", "coreweave/nobody"], "no ranked offer 'coreweave/nobody'"),
    (["cost", "--framework", "torchtun"], "did you mean torchtune"),
    (["cost", "--optimizer", "adamx"], "optimizer 'adamx' is not one of"),
    (["cost", "--method", "full", "--quant", "nf4"], "nf4 weights cannot be trained in full"),
    (["cost", "--model", "Lama-3.1-8B"], "did you mean meta-llama/Llama-3.1-8B"),
    (["cost", "--job", "no-such-job"], "unknown job"),
    (["cost", "--model", "Qwen2.5-7B", "--tokens", "-5"], "must be above 0"),
    (["cost", "--tokens", "0"], "must be above 0"),
    (["cost", "--tokens", "nan"], "must be a number"),
    (["cost", "--tokens", "inf"], "1,000,000,000,000,000 at most"),
    (["cost", "--tokens", "1e16"], "at most"),
    (["cost", "--rows", "9" * 400, "--length", "1"], "at most"),
    (["cost", "--rows", "1000000000000", "--length", "9999999"], "--tokens can be"),
    (["cost", "--sessions", "100000"], "--sessions can be 10,000 at most"),
    (["cost", "--idle-hours", "nan"], "must be a number"),
    (["cost", "--dataset-gb", "inf"], "at most"),
    (["cost", "--keep-days", "-1"], "cannot be negative"),
    (["cost", "--max-hours", "nan"], "not a number of hours"),
    (["cost", "--deadline-hours", "nan"], "not a number of hours"),
    (["cost", "--checkpoint-minutes", "0"], "must be above 0"),
    (["cost", "--explain", "no-such-offer"], "no ranked offer"),
    (["cost", "--deadline-hours", "0.0001"], "finishes within"),
    (
        ["cost", "--sessions", "5", "--idle-hours", "12", "--deadline-hours", "24"],
        "gaps between 5 sessions alone last 48 hours",
    ),
    (["cost", "--idle-hours", "5"], "give --sessions 2 or more"),
    (["cost", "--method", "full", "--lora-rank", "8"], "which has no rank"),
    (["cost", "--method", "lora", "--lora-targets", "foo"], "has no module 'foo'"),
    (["cost", "--method", "lora", "--seq-len", "1000000"], "has 131072 positions"),
    (["cost", "--model", "vit-base-patch16-224", "--method", "full"], "is no text model"),
    (["cost", "--rows", "10"], "--rows and --length go together"),
    (["cost", "--config", "/nowhere/config.json"], "cannot read"),
    (["cost", "--provider", "azur"], "did you mean azure"),
    (["cost", "--gpu", "H1000"], "unknown GPU"),
    (["cost", "--market", "free"], "unknown market"),
    (["cost", "--region", "us-eastt-1"], "did you mean us-east-1"),
    (["cost", "--country", "XX"], "unknown country"),
    (["prices", "--region", "us-e"], "unknown region"),
    (["cost", "--max-hours", "0.0001"], "no offer passes the filters (without --max-hours "),
    (["cost", "--gpu", "MI100-32GB"], "no machine with that GPU is on sale"),
    (
        ["cost", "--max-hours", "0.0001", "--max-age-hours", "0"],
        "(nor with any one of them dropped)",
    ),
    (
        ["cost", "--model", "Llama-3.1-70B", "--method", "full", "--gpu", "L4-24GB"],
        "no machine with that GPU can run the job: the largest, 8 x L4-24GB: needs",
    ),
    (["cost", "--max-hours", "0.0001", "--format", "json"], "no offer passes the filters"),
    (["cost", "--max-hours", "0.0001", "--format", "csv"], "no offer passes the filters"),
    (["history", "--since", "yesterday"], "does not match the formats"),
    (["prices", "--provider", "nobody"], "unknown provider"),
    (["refresh", "vats", "--replay", "."], "did you mean vast"),
    (["refresh", "--replay", "/nowhere"], "does not exist"),
    (["refresh", "--replay", ".", "--offline"], "exclude each other"),
    (["size", "--model", "Llama-3.1-8B", "--lora-rank", "0"], "must be at least 1"),
    (["size", "--model", "Llama-2-7b-hf", "--seq-len", "1000000"], "positions"),
    (["size", "--model", "Llama-3.1-8B", "--framework", "pytroch"], "has no preset"),
    (["size", "--jobs", "/nowhere.csv"], "cannot read"),
    (["size"], "give --model NAME or --config FILE"),
    (["sql", "selct 1"], "Parser Error"),
    (["sql", " "], "no query"),
    (["sql", "from rows"], "does not exist"),
    (["sql", "delete from marts.publication"], "read-only"),
    (["schedule", "--cron", "every night"], "no cron expression"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=lambda v: " ".join(v)[:60] if isinstance(v, list) else "")  # fmt: skip  # noqa: E501
def test_bad_usage_is_one_line_and_exit_2(filled: Path, arguments: list[str], words: str) -> None:
    result = run(*arguments, data=filled)
    assert result.exit_code == 2, (result.output, result.exception)
    assert words in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert words in last
    assert "Traceback" not in result.output
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["prices", "cost", "status", "history", "export", "site"])
def test_without_prices_the_next_step_is_named(tmp_path: Path, command: str) -> None:
    arguments = [command, str(tmp_path / "out")] if command in ("export", "site") else [command]
    result = run(*arguments, data=tmp_path / "empty")
    assert result.exit_code == 2
    assert "run `tunecost refresh` first" in result.stderr


def test_a_damaged_ledger_is_named_and_left_alone(tmp_path: Path, replay_dir: Path) -> None:
    (tmp_path / "ledger.duckdb").write_bytes(b"damaged" * 1000)
    result = run("refresh", "--replay", str(replay_dir), data=tmp_path)
    assert result.exit_code == 2
    assert "cannot be read as a tunecost database" in result.stderr
    assert (tmp_path / "ledger.duckdb").read_bytes() == b"damaged" * 1000


def test_a_damaged_published_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "prices.duckdb").write_bytes(b"damaged" * 1000)
    result = run("prices", data=tmp_path)
    assert result.exit_code == 2
    assert "delete it and run `tunecost refresh`" in result.stderr


def test_a_data_folder_that_cannot_be_written_is_named(tmp_path: Path, replay_dir: Path) -> None:
    """Root may write anywhere: a file in the folder's place stands for every such cause."""
    (tmp_path / "taken").write_text("a file")
    result = run("refresh", "--replay", str(replay_dir), data=tmp_path / "taken" / "data")
    assert result.exit_code == 2
    assert "--data DIR" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_read_only_data_folder_is_named(fresh: Path, replay_dir: Path) -> None:
    """As an ordinary user: for root no folder is read-only."""
    fresh.chmod(0o555)
    for path in [*fresh.parents, replay_dir, *replay_dir.parents]:
        if path.is_relative_to(Path(tempfile.gettempdir())) and path != Path(tempfile.gettempdir()):
            path.chmod(path.stat().st_mode | 0o055)
    # What the command imports is loaded first: the interpreter may lie in root's home.
    script = (
        "import os, sys, flows.cli, flows.refresh, flows.costs, flows.show, rich.table\n"
        "if os.getuid() == 0:\n    os.setgid(65534)\n    os.setuid(65534)\n"
        "flows.cli.app(sys.argv[1:], prog_name='tunecost')"
    )
    arguments = ["refresh", "--replay", str(replay_dir), "--data", str(fresh)]
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True
    )
    fresh.chmod(0o755)
    assert result.returncode == 2, result.stderr
    assert "--data DIR" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(p.name for p in fresh.iterdir()) == ["plans.parquet"]


def test_refresh_says_what_became_of_each_provider(fresh: Path, tmp_path: Path) -> None:
    folder = lay_replay(tmp_path / "replay")
    (folder / "oci" / "products.json").write_text("<html>maintenance</html>")
    result = run("refresh", "--replay", str(folder), data=fresh)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert any(line.startswith("oci: failed: ") for line in lines)
    assert any(line.startswith("vast: ") and "offers" in line for line in lines)
    assert any(line.startswith("baseline: ") for line in lines)
    assert "QLoRA, 10M tokens" in result.stdout
    assert "Next: tunecost cost" in result.stdout


def test_export_twice_gives_the_same_bytes(filled: Path, tmp_path: Path) -> None:
    for form in ("csv", "parquet"):
        for folder in ("a", "b"):
            ok("export", str(tmp_path / form / folder), "--format", form, data=filled)
        names = sorted(p.name for p in (tmp_path / form / "a").iterdir())
        tables = ("cost_per_job", "current_prices", "provider_terms")
        assert names == sorted(["datapackage.json", *(f"{name}.{form}" for name in tables)])
        for name in names:
            first = (tmp_path / form / "a" / name).read_bytes()
            assert first == (tmp_path / form / "b" / name).read_bytes()
    package = json.loads((tmp_path / "csv" / "a" / "datapackage.json").read_text())
    for resource in package["resources"]:
        content = (tmp_path / "csv" / "a" / resource["path"]).read_text()
        header = content.splitlines()[0].split(",")
        assert header == [field["name"] for field in resource["schema"]["fields"]]
        assert all(field["description"] for field in resource["schema"]["fields"])
        assert "age_hours" not in header


def test_help_does_not_load_the_heavy_libraries() -> None:
    script = (
        "import sys, flows.cli;"
        " print([m for m in ('prefect', 'duckdb', 'altair', 'httpx', 'rich') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout == "[]\n"


def test_every_command_explains_itself() -> None:
    assert isinstance(app, click.Group)
    expected = {
        "refresh", "status", "prices", "history", "size", "cost", "export", "sql", "reparse",
        "providers", "schedule", "site",
    }  # fmt: skip
    assert set(app.commands) >= expected
    for name, command in app.commands.items():
        assert command.help, name
        assert ok(name, "--help").startswith("Usage:")


def test_the_readme_shows_every_command() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    for name in app.commands:  # type: ignore[attr-defined]
        if name not in ("providers", "reparse"):
            assert f"./run {name}" in readme, name


def test_a_pipe_that_closes_early_is_no_error(filled: Path) -> None:
    command = [sys.executable, "-m", "flows", "cost", "--format", "json", "--data", str(filled)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
