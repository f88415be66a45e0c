"""The command line. Every heavy import is inside its command, so that `--help` answers at once.

Data goes to stdout, diagnostics and progress to stderr. Exit codes: 0 fine, 1 something failed
though the rest was kept, 2 bad usage or input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

if TYPE_CHECKING:
    from flows.refresh import OnResult, ScopeResult

F = TypeVar("F", bound=Callable[..., Any])
UTC_TIME = click.DateTime(
    ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"]
)


class Hours(click.FloatRange):
    """A number of hours: NaN, which every comparison lets through, is none."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a number of hours.", param, ctx)
        return number


class OneLineErrors(click.Group):
    """Turns what the user can mend into one line on stderr and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; see `user_errors` for what is caught."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException, BrokenPipeError):
            raise
        except Exception as error:
            line = explain(error)
            if line is None:
                raise
            click.echo(f"tunecost: {line}", err=True)
            raise click.exceptions.Exit(code_of(error)) from error


def explain(error: Exception) -> str | None:
    """Return the line for an error that a user can mend; None for a fault of ours."""
    import duckdb

    from flows.refresh import UsageError
    from scrapers.errors import SourceError
    from warehouse.errors import WarehouseError
    from warehouse.seeds import SeedError
    from warehouse.sizing.errors import SizingError

    if isinstance(error, UsageError | WarehouseError | SourceError | SeedError | SizingError):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, duckdb.Error):
        # The first line names the fault; the rest points into the statement.
        return str(error).splitlines()[0]
    return None


def code_of(error: Exception) -> int:
    """Return 1 where a check forbade publishing what was kept, else 2."""
    from warehouse.errors import CheckFailed

    return 1 if isinstance(error, CheckFailed) else 2


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tunecost", prog_name="tunecost")
def app() -> None:
    """What an LLM fine-tuning job costs on every GPU cloud, today and over time."""


def data_option(command: F) -> F:
    """Add --data."""
    return click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("data"),
        envvar="TUNECOST_DATA",
        show_default=True,
        help="Data folder (or TUNECOST_DATA).",
    )(command)


def format_option(command: F) -> F:
    """Add --format."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["table", "csv", "json"]),
        default="table",
        show_default=True,
        help="How to print.",
    )(command)


def limit_option(default: int) -> Callable[[F], F]:
    """Add --limit; a table is cut to the default, csv and json are whole."""
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        default=None,
        help=f"At most so many rows (a table: {default}; csv and json: all).",
    )


def limited(limit: int | None, form: str, default: int) -> int:
    """Return the row limit that holds."""
    return limit if limit is not None else (default if form == "table" else sys.maxsize)


# --- collecting -------------------------------------------------------------------------------


@app.command()
@click.argument("providers", nargs=-1)
@data_option
@click.option(
    "--replay",
    "replay_dir",
    type=click.Path(path_type=Path),
    help="Read recorded answers from DIR/<provider>/<request-name>[.N].<ext>[.gz].",
)
@click.option("--offline", is_flag=True, help="Ask nobody: bundled baseline and what is kept.")
def refresh(providers: tuple[str, ...], data: Path, replay_dir: Path | None, offline: bool) -> None:
    """Collect prices (all providers, or those named), keep them and publish."""
    from flows import refresh as night
    from flows.reports import report, show_default_job

    if replay_dir is not None and offline:
        raise click.UsageError("--replay and --offline exclude each other")
    with progress("collecting") as on_result:
        summary = night.refresh(
            data, providers, replay_dir=replay_dir, offline=offline, on_result=on_result
        )
    report(summary, data)
    show_default_job(data)
    sys.exit(1 if summary.failed() else 0)


@app.command()
@click.argument("providers", nargs=-1)
@data_option
def reparse(providers: tuple[str, ...], data: Path) -> None:
    """Derive history again from the archived answers with today's parsers."""
    from flows import refresh as night
    from flows.reports import report

    with progress("parsing") as on_result:
        summary = night.reparse(data, providers, on_result=on_result)
    report(summary, data)
    sys.exit(1 if summary.failed() else 0)


@app.command()
@click.option("--cron", default="0 3 * * *", show_default=True, help="When, in UTC.")
@data_option
def schedule(cron: str, data: Path) -> None:
    """Serve the nightly refresh from this process until it is stopped."""
    from flows.nightly import serve_nightly

    serve_nightly(cron, data.absolute())


@contextmanager
def progress(verb: str) -> Iterator[OnResult]:
    """Show scopes going by on stderr while it is a terminal; be quiet when piped."""
    from flows.refresh import ignore

    if not sys.stderr.isatty():
        yield ignore
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{verb} …", total=None)
        seen = 0

        def on_result(result: ScopeResult) -> None:
            nonlocal seen
            seen += 1
            where = f"{result.provider} {result.scope}".strip()
            bar.update(task, description=f"{verb}: {seen} scopes, last {where} {result.status}")

        yield on_result


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show a spinner on stderr while it is a terminal; be quiet when piped."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} …"):
        yield


# --- looking ----------------------------------------------------------------------------------


@app.command()
@data_option
@format_option
def status(data: Path, form: str) -> None:
    """Show each provider's last outcome and the age of its prices."""
    from flows.costs import to_rows
    from flows.show import age, print_rows
    from warehouse.reader import open_published

    with open_published(data) as connection:
        rows = to_rows(connection.execute("from marts.provider_health order by provider"))
    if form == "table":
        rows[:] = [row | {"age": age(row["age_hours"])} for row in rows]
    print_rows(
        rows,
        form,
        {
            "provider": "provider",
            "health": "health",
            "offers": "offers",
            "offers_unknown_gpu": "unknown GPU",
            "scopes_ok": "scopes ok",
            "scopes": "of",
            "rejects": "refused",
            "newest_ok_at": "last seen (UTC)",
            "age": "oldest price",
            "last_error": "last error",
        },
    )


@app.command("providers")
@data_option
@format_option
def list_providers(data: Path, form: str) -> None:
    """List the provider modules, the keys they need, and who is known from the baseline only."""
    import os

    from flows.show import print_rows
    from scrapers.collect import discover
    from warehouse import seeds

    known = {row["provider"]: row for row in seeds.load("providers")}
    listed = {row["provider"] for row in seeds.load("baseline_offers")}
    modules = discover()
    rows = []
    for slug in sorted(known.keys() | modules.keys()):
        module, row = modules.get(slug), known.get(slug, {})
        keys = module.PROVIDER.keys if module else ()
        optional = module.PROVIDER.optional_keys if module else ()
        missing = [key for key in (*keys, *optional) if not os.environ.get(key)]
        rows.append(
            {
                "provider": slug,
                "name": module.PROVIDER.name if module else row.get("name"),
                "source": "live" if module else "baseline" if slug in listed else "terms only",
                "needs_key": " ".join(keys) or None,
                "optional_key": " ".join(optional) or None,
                "key_is_set": not missing if keys or optional else None,
                "pricing_url": module.PROVIDER.pricing_url if module else row.get("pricing_url"),
            }
        )
    print_rows(rows, form)


def offer_filters(command: F) -> F:
    """Add the filters that prices, history and cost share."""
    for option in (
        click.option("--market", "markets", multiple=True, help="on_demand, spot, …"),
        click.option("--country", "countries", multiple=True, help="ISO code, e.g. FR."),
        click.option("--region", "regions", multiple=True, help="The provider's region code."),
        click.option("--gpu", "gpus", multiple=True, help="Variant (A100-80GB-SXM) or family."),
        click.option("--provider", "providers", multiple=True, help="Provider slug."),
    ):
        command = option(command)
    return command


@app.command()
@offer_filters
@click.option("--max-age-hours", type=Hours(min=0), help="Seen within so many hours.")
@click.option("--available", is_flag=True, help="Only offers stated as available.")
@limit_option(20)
@data_option
@format_option
def prices(
    providers: tuple[str, ...],
    gpus: tuple[str, ...],
    regions: tuple[str, ...],
    countries: tuple[str, ...],
    markets: tuple[str, ...],
    max_age_hours: float | None,
    available: bool,
    limit: int | None,
    data: Path,
    form: str,
) -> None:
    """Show current prices, cheapest per GPU-hour first."""
    from flows.costs import Filters, to_rows
    from flows.reports import check_names
    from flows.show import age, print_rows, usd
    from warehouse.reader import open_published

    filters = Filters(providers, regions, countries, markets, gpus, max_age_hours=max_age_hours)
    with open_published(data) as connection:
        check_names(connection, filters)
        where, values = filters.where()
        query = (
            f"from marts.current_prices where {where}"
            f" {'and is_available' if available else ''}"
            " order by price_usd_per_gpu_hour, provider, sku, region, offer_id"
        )
        rows = to_rows(connection.execute(query, values))
    total = len(rows)
    del rows[limited(limit, form, 20) :]
    if form == "table":
        rows[:] = [
            row
            | {
                "machine": usd(row["price_usd_per_hour"]),
                "per_gpu": usd(row["price_usd_per_gpu_hour"]),
                "age": age(row["age_hours"]) + (" baseline" if row["is_baseline"] else ""),
                "gpu": row["gpu"] or f"? {row['gpu_label']}",
            }
            for row in rows
        ]
    print_rows(
        rows,
        form,
        {
            "gpu": "GPU",
            "gpu_count": "n",
            "per_gpu": "per GPU-h",
            "machine": "machine/h",
            "market": "market",
            "provider": "provider",
            "sku": "sku",
            "region": "region",
            "tier": "tier",
            "is_available": "available",
            "age": "age",
        },
    )
    if not rows:
        click.echo("no offer passes the filters", err=True)
    if form == "table" and len(rows) < total:
        click.echo(f"{len(rows)} of {total} offers; --limit N shows more", err=True)


@app.command()
@offer_filters
@click.option("--sku", help="Only this machine.")
@click.option("--since", type=UTC_TIME, help="Prices that held after this UTC time.")
@click.option("--as-of", type=UTC_TIME, help="Prices that held at this UTC time.")
@limit_option(50)
@data_option
@format_option
def history(
    providers: tuple[str, ...],
    gpus: tuple[str, ...],
    regions: tuple[str, ...],
    countries: tuple[str, ...],
    markets: tuple[str, ...],
    sku: str | None,
    since: Any,
    as_of: Any,
    limit: int | None,
    data: Path,
    form: str,
) -> None:
    """Show every price of an offer with the time for which it held, newest first."""
    from flows.costs import Filters, to_rows
    from flows.reports import check_names
    from flows.show import print_rows, usd
    from warehouse.reader import open_published

    filters = Filters(providers, regions, countries, markets, gpus)
    with open_published(data) as connection:
        check_names(connection, filters)
        where, values = filters.where()
        relation = "marts.price_history"
        if as_of is not None:
            relation = "marts.prices_as_of($as_of)"
            values["as_of"] = as_of
        if sku is not None:
            where += " and sku = $sku"
            values["sku"] = sku
        if since is not None:
            where += " and (valid_to is null or valid_to > $since)"
            values["since"] = since
        order = "valid_from desc, provider, sku, region, offer_id"
        query = f"from {relation} where {where} order by {order}"
        rows = to_rows(connection.execute(query, values))
    total = len(rows)
    del rows[limited(limit, form, 50) :]
    if form == "table":
        rows[:] = [row | {"machine": usd(row["price_usd_per_hour"])} for row in rows]
    print_rows(
        rows,
        form,
        {
            "provider": "provider",
            "sku": "sku",
            "region": "region",
            "market": "market",
            "tier": "tier",
            "gpu": "GPU",
            "gpu_count": "n",
            "price_per_hour": "price/h",
            "currency": "in",
            "machine": "USD/h",
            "valid_from": "from (UTC)",
            "valid_to": "to (UTC)",
        },
    )
    if not rows:
        click.echo("no price passes the filters", err=True)
    if form == "table" and len(rows) < total:
        click.echo(f"{len(rows)} of {total} spans; --limit N shows more", err=True)


@app.command()
@click.argument("query")
@data_option
@format_option
def sql(query: str, data: Path, form: str) -> None:
    """Run a SELECT on the published file, e.g. 'from marts.cheapest_gpus'."""
    from flows.costs import to_rows
    from flows.show import print_rows
    from warehouse.reader import open_published

    if not query.strip():
        raise click.UsageError("no query; e.g. tunecost sql 'from marts.cheapest_gpus'")
    with open_published(data) as connection:
        rows = to_rows(connection.execute(query))
    print_rows(rows, form)


# --- answering --------------------------------------------------------------------------------


@app.command()
@click.option(
    "--job", "job_name", help="A reference job (marts.jobs); the default one if nothing is given."
)
@click.option("--model", help="Hugging Face id, or its last part.")
@click.option("--config", type=click.Path(path_type=Path), help="A config.json, for other models.")
@click.option("--method", type=click.Choice(["full", "lora", "qlora", "adapter", "prefix"]))
@click.option("--tokens", type=float, help="Tokens trained in all, every epoch counted.")
@click.option("--rows", type=int, help="Samples; with --length and --epochs instead of --tokens.")
@click.option("--length", type=int, help="Tokens per sample.")
@click.option("--epochs", type=float)
@click.option("--seq-len", type=int, help="Sequence length of a training step.")
@click.option("--lora-rank", type=int)
@click.option("--lora-targets", help="all-linear, attention, or module names.")
@click.option("--quant", help="Of frozen weights: none, nf4, nf4-dq, int8, gptq-int4.")
@click.option("--optimizer", help="adamw, adamw8bit, paged_adamw8bit, adafactor, sgd, …")
@click.option("--framework", help="Whose defaults hold.")
@click.option("--dataset-gb", type=float, help="Data to load.")
@click.option("--keep-days", type=float, help="Days that data and checkpoints are kept after.")
@click.option("--sessions", type=int, help="Starts; fine-tuning is stop-and-go.")
@click.option("--idle-hours", type=float, help="Gap between two sessions.")
@click.option(
    "--behind-nat", is_flag=True, default=None, help="No public address: pay the NAT gateway too."
)
@click.option(
    "--checkpoint-minutes", type=float, help="Work between saves; Young's optimum if not given."
)
@offer_filters
@click.option("--max-hours", type=Hours(min=0), help="Done within so many hours.")
@click.option("--max-age-hours", type=Hours(min=0), help="Price seen within so many hours.")
@click.option(
    "--needs",
    multiple=True,
    type=click.Choice(["ssh", "docker", "jupyter", "nvlink", "persistent-storage", "availability"]),
)
@click.option(
    "--deadline-hours",
    type=Hours(min=0, min_open=True),
    help="Drop what likely takes longer; add the probability to finish in time.",
)
@click.option("--explain", help="Print one bill line by line: an offer_id, a sku, or provider/sku.")
@limit_option(15)
@data_option
@format_option
def cost(
    job_name: str | None,
    providers: tuple[str, ...],
    gpus: tuple[str, ...],
    regions: tuple[str, ...],
    countries: tuple[str, ...],
    markets: tuple[str, ...],
    max_hours: float | None,
    max_age_hours: float | None,
    needs: tuple[str, ...],
    deadline_hours: float | None,
    explain: str | None,
    limit: int | None,
    data: Path,
    form: str,
    **stated: Any,
) -> None:
    """Rank every offer by what the job would cost on it, cheapest first."""
    from flows.costs import Filters
    from flows.jobs import DEFAULT_JOB, find_job
    from flows.reports import print_costs

    job, extra = build_job(job_name or DEFAULT_JOB, is_default=job_name is None, stated=stated)
    if job is None:
        job = find_job(job_name or DEFAULT_JOB)
    filters = Filters(providers, regions, countries, markets, gpus, max_hours, max_age_hours, needs)
    print_costs(
        data,
        job,
        form=form,
        limit=limited(limit, form, 15),
        filters=filters,
        models=extra,
        deadline_hours=deadline_hours,
        explain=explain,
    )


def build_job(
    name: str, *, is_default: bool, stated: dict[str, Any]
) -> tuple[dict[str, str] | None, dict[str, Any] | None]:
    """Return a custom job and the models to find its model in; (None, None) when nothing is stated.

    Raises:
        UsageError: an unknown model or job, or amounts that make no job.
        SizingError: an unknown framework, optimizer or quantisation, or one that does not go with
            the method.
    """
    from flows.jobs import find_job, find_model, make_job, read_config
    from flows.refresh import UsageError, load_models
    from warehouse.sizing.plans import read_job

    base = dict(find_job(name))
    if all(value is None for value in stated.values()):
        return None, None
    models = load_models()
    config, model = stated.pop("config"), stated.pop("model")
    if config is not None and model is not None:
        raise UsageError("give --model or --config, not both")
    if config is not None:
        stated["model"] = str(config)
        models[str(config)] = read_config(config)
    elif model is not None:
        stated["model"] = find_model(model, models)
    if is_default and stated.get("method") is not None and stated["method"] != base["method"]:
        # The default job's quantisation, rank and framework belong to its method.
        base |= method_defaults(stated["method"], base["model"])
    if stated.get("framework") is not None:
        # The framework's own choice, where the user states none.
        base |= {"optimizer": "", "quant": ""}
    job = make_job(stated, base)
    read_job(job, models)  # refuses what no run can be, before any data are opened
    return job, models


def method_defaults(method: str, model: str) -> dict[str, str]:
    """Return the job columns that go with a method: those of the model's smallest reference job."""
    from warehouse import seeds

    jobs = [r for r in seeds.load("jobs") if (r["method"], r["model"]) == (method, model)]
    row = min(jobs, key=lambda r: int(r["tokens"]))
    names = (
        "method", "quant", "lora_rank", "lora_targets", "weight_dtype", "optimizer", "framework"
    )  # fmt: skip
    return {name: row[name] for name in names}


@app.command()
@click.option(
    "--jobs", "jobs_file", type=click.Path(path_type=Path), help="Size every row of a CSV."
)
@click.option("--model", help="Hugging Face id, or its last part.")
@click.option("--config", type=click.Path(path_type=Path), help="A config.json, for other models.")
@click.option("--method", default="qlora", show_default=True, help="full, lora, qlora, prefix, …")
@click.option("--framework", default="transformers", show_default=True, help="Whose defaults hold.")
@click.option("--seq-len", type=int, help="Tokens per sequence (images: pixels per side).")
@click.option("--micro-batch", type=int, help="Sequences per GPU and forward pass.")
@click.option("--lora-rank", type=int)
@click.option("--lora-targets", help="all-linear, attention, or module names.")
@click.option("--adapter-dtype", help="bf16, fp16 or fp32.")
@click.option(
    "--weight-dtype", help="bf16, fp16 or fp32; by default bf16, and fp16 on cards without it."
)
@click.option("--quant", help="none, nf4, nf4-dq, int8, gptq-int4.")
@click.option("--optimizer", help="adamw, adamw8bit, adafactor, sgd, …")
@click.option("--grad-checkpointing", help="none, selective or full.")
@click.option("--attention", help="flash, sdpa or eager.")
@click.option("--loss", "loss_impl", help="standard, fused_ce, fused_linear_ce, chunked.")
@click.option("--gpus", type=int, help="GPUs in total, for the breakdown.")
@click.option("--sharding", help="none, ddp, zero1, zero2, zero3 or fsdp.")
@click.option("--offload", help="none, optimizer, params or activations.")
@click.option("--gpu", help="Card whose overhead counts, and the only one tried.")
@format_option
def size(
    jobs_file: Path | None,
    model: str | None,
    config: Path | None,
    method: str,
    framework: str,
    gpu: str | None,
    form: str,
    **stated: Any,
) -> None:
    """Show the memory that a job needs, by term and phase, and which cards hold it."""
    from flows.jobs import find_model, read_config
    from flows.refresh import load_cards, load_models
    from flows.reports import find_card, print_size, print_sized_file
    from flows.sizes import build_setup, size_file
    from flows.sizes import describe as describe_size

    if jobs_file is not None:
        with busy("sizing"):
            print_sized_file(size_file(jobs_file), form)
        return
    if (model is None) == (config is None):
        raise click.UsageError("give --model NAME or --config FILE (or --jobs FILE.csv)")
    models = load_models()
    spec = read_config(config) if config is not None else models[find_model(str(model), models)]
    card = find_card(gpu, load_cards()) if gpu is not None else None
    setup = build_setup(framework, method, stated)
    result = describe_size(
        spec, setup, card, [card] if card else (), is_dtype_asked=stated["weight_dtype"] is not None
    )
    if form == "table":
        print_size(result)
    else:
        from flows.show import print_rows

        print_rows([result] if form == "json" else result["cards"], form)


# --- handing on -------------------------------------------------------------------------------


@app.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True
)
@data_option
def export(folder: Path, form: Literal["csv", "parquet"], data: Path) -> None:
    """Write current prices, terms and cost per job to FOLDER, with a datapackage.json."""
    from warehouse.export import export_snapshots
    from warehouse.reader import open_published

    with open_published(data) as connection, busy("writing snapshots"):
        paths = export_snapshots(connection, folder, form)
    for path in paths:
        click.echo(path)


@app.command()
@click.argument("folder", type=click.Path(path_type=Path))
@data_option
def site(folder: Path, data: Path) -> None:
    """Write a static page to FOLDER that opens from disk."""
    from dashboards.site import write_site
    from warehouse.reader import open_published

    with open_published(data) as connection, busy("drawing"):
        page = write_site(connection, folder)
    click.echo(page)
