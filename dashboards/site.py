"""Write the static page: one HTML file that opens from disk and asks nobody for anything.

The figures are HTML, rendered here, and stay readable without JavaScript; the charts are Vega-Lite
and come on top. Style, scripts and data are inside the file, and its content security policy
forbids every request and every script but those two that it names by hash. Whatever a provider
wrote goes through Jinja2's escaping.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import duckdb
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

PAGE: Final = "index.html"
DEFAULT_JOB: Final = "llama-3.1-8b-qlora-10m"
RANKED: Final = 12
"""Offers shown per job."""
CHARTED: Final = 8
"""GPUs with a chart: those that most providers sell."""
LISTED: Final = 16
"""GPUs listed before the rest is folded away."""
GAP_DAYS: Final = 3
"""A line is broken where nobody looked for longer than this."""
BAND_LIMIT: Final = 2.2
"""A bar's scale ends at this multiple of the dearest likely cost: one wide band may be cut off
there, so that it does not flatten all the others."""

METHODS: Final = {
    "qlora": "QLoRA",
    "lora": "LoRA",
    "full": "All weights",
    "adapter": "Adapter",
    "prefix": "Prefix tuning",
}
MARKETS: Final = {"on_demand": "on-demand", "spot": "spot"}
STATES: Final = {
    "ok": "live",
    "cut short": "live, not all shown",
    "partly baseline": "partly live",
    "failed": "last attempt failed",
    "held": "held for confirmation",
    "skipped": "skipped",
    "baseline": "baseline",
}

Row = dict[str, Any]


def write_site(connection: duckdb.DuckDBPyConnection, folder: Path) -> Path:
    """Write `index.html` into a folder, which is made when it is missing; return its path.

    Args:
        connection: the published file, opened read-only in UTC.
        folder: where the page goes; a page that is there is replaced at once, never half.

    Raises:
        OSError: the folder cannot be made or written to.
        duckdb.Error: the published file lacks a mart.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / PAGE
    work = folder / f".{PAGE}.{os.getpid()}.work"
    try:
        work.write_text(render_page(connection, datetime.now(UTC)), encoding="utf-8")
        work.replace(target)
    finally:
        work.unlink(missing_ok=True)
    return target


def render_page(connection: duckdb.DuckDBPyConnection, written_at: datetime) -> str:
    """Return the page's HTML; ages are as of the time at which it is written."""
    gpus = read_gpus(connection)
    charted = [row for row in gpus if row["on_demand"]][:CHARTED]
    names = [row["gpu"] for row in charted]
    live, baseline = read_history(connection, names), read_baseline(connection, names)
    series = [baseline.get(name, []) + live.get(name, []) for name in names]
    days = [row["day"] for rows in series for row in rows]
    scripts = [charts_script(), packaged("page.js")]
    return (
        make_environment(written_at)
        .get_template("page.html")
        .render(
            publication=read_rows(connection, "select * from marts.publication")[0],
            written_at=written_at,
            jobs=read_jobs(connection),
            rankings=read_rankings(connection),
            gpus=gpus,
            charted=charted,
            live=live,
            baseline=baseline,
            chart_data={
                "series": series,
                "spec": history_spec(min(days), max(days)) if days else None,
            },
            health=read_health(connection),
            style=Markup(packaged("style.css")),  # noqa: S704 - our own file
            scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own and Vega's
            script_hashes=[content_hash(script) for script in scripts],
            constants={
                "ranked": RANKED,
                "listed": LISTED,
                "gap_days": GAP_DAYS,
                "job": DEFAULT_JOB,
            },
        )
    )


# --- reading ----------------------------------------------------------------------------------


def read_rows(
    connection: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, Any] | None = None
) -> list[Row]:
    """Return a statement's rows as mappings."""
    result = connection.execute(sql, values)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def read_jobs(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Return the reference jobs by title, the default one first."""
    return read_rows(
        connection,
        """
        select job, title, model, method, tokens, seq_len, lora_rank
        from marts.jobs
        order by job <> $default, lower(title), job
        """,
        {"default": DEFAULT_JOB},
    )


def read_rankings(connection: duckdb.DuckDBPyConnection) -> dict[str, list[Row]]:
    """Return each job's cheapest offers, cheapest first, with the geometry of their bars.

    One provider's machines of one GPU and market are one line, its cheapest: else twenty regions
    of the same machine would fill the table. `alternatives` counts the offers behind the line.
    """
    rows = read_rows(
        connection,
        """
        with each_kind as (
            select
                job, provider, provider_name, region, sku, market, tier, gpu, gpu_count,
                cost_usd_low, cost_usd, cost_usd_high, hours_low, hours, hours_high,
                unknown_terms, assumed_usd, observed_at, age_hours, is_baseline, source, offer_id,
                count(*) over kind as alternatives,
                row_number() over (
                    kind order by cost_usd, cost_usd_high, sku, region, offer_id
                ) as place
            from marts.cost_per_job
            where is_eligible
            window kind as (partition by job, provider, gpu, market)
        )

        select
            * exclude (place),
            row_number() over (
                partition by job order by cost_usd, cost_usd_high, provider, sku, region, offer_id
            ) as rank
        from each_kind
        where place = 1
        qualify rank <= $ranked
        order by job, rank
        """,
        {"ranked": RANKED},
    )
    rankings = {job: list(some) for job, some in groupby(rows, lambda row: row["job"])}
    for some in rankings.values():
        scale_bars(some)
    return rankings


def scale_bars(rows: Sequence[Row]) -> None:
    """Give each row where its bar and band start and end, in percent of the widest that fits."""
    end = min(
        max(row["cost_usd_high"] for row in rows),
        BAND_LIMIT * max(row["cost_usd"] for row in rows),
    )
    for row in rows:
        for figure in ("cost_usd_low", "cost_usd", "cost_usd_high"):
            row[f"{figure}_percent"] = round(min(100.0, 100 * row[figure] / end), 2) if end else 0.0
        row["is_cut"] = row["cost_usd_high"] > end


def read_gpus(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Return each GPU with its cheapest on-demand and spot offer; the most widely sold first."""
    rows = read_rows(
        connection,
        """
        select gpu, market, providers, price_usd_per_gpu_hour, provider_name, region, observed_at,
            age_hours, is_baseline, source
        from marts.cheapest_gpus
        where market in ('on_demand', 'spot')
        order by gpu, market
        """,
    )
    gpus: list[Row] = []
    for gpu, some in groupby(rows, lambda row: row["gpu"]):
        markets = {row["market"]: row for row in some}
        gpus.append({
            "gpu": gpu,
            "on_demand": markets.get("on_demand"),
            "spot": markets.get("spot"),
            "providers": max(row["providers"] for row in markets.values()),
        })  # fmt: skip
    return sorted(gpus, key=lambda row: (row["on_demand"] is None, -row["providers"], row["gpu"]))


def read_history(
    connection: duckdb.DuckDBPyConnection, gpus: Sequence[str]
) -> dict[str, list[Row]]:
    """Return what was read live of these GPUs: the cheapest on-demand price of each day.

    `segment` rises by one after every stretch in which nobody looked for more than GAP_DAYS;
    `is_alone` marks a day that is a segment of its own, which no line can show.
    """
    rows = read_rows(
        connection,
        """
        with gaps as (
            select
                gpu, "day", price_usd_per_gpu_hour as usd, provider_name as provider, region,
                coalesce(
                    "day" - lag("day") over (partition by gpu order by "day") > $gap_days, false
                ) as is_after_gap
            from marts.gpu_price_history
            where market = 'on_demand' and list_contains($gpus::varchar[], gpu)
        ),

        segments as (
            select
                * exclude (is_after_gap),
                (count_if(is_after_gap) over (partition by gpu order by "day"))::integer as segment
            from gaps
        )

        select *, false as is_baseline, count(*) over (partition by gpu, segment) = 1 as is_alone
        from segments
        order by gpu, "day"
        """,
        {"gpus": list(gpus), "gap_days": GAP_DAYS},
    )
    return {gpu: list(some) for gpu, some in groupby(rows, lambda row: row["gpu"])}


def read_baseline(
    connection: duckdb.DuckDBPyConnection, gpus: Sequence[str]
) -> dict[str, list[Row]]:
    """Return the bundled prices of these GPUs still in use: one per provider, dated when seen."""
    rows = read_rows(
        connection,
        """
        select
            gpu, observed_at::date as "day", price_usd_per_gpu_hour as usd,
            provider_name as provider, region, true as is_baseline
        from marts.current_prices
        where
            is_baseline and market = 'on_demand' and list_contains($gpus::varchar[], gpu)
            and gpu_count >= 1 and is_available is distinct from false
        qualify
            row_number() over (
                partition by gpu, provider order by price_usd_per_gpu_hour, region, offer_id
            ) = 1
        order by gpu, "day", provider
        """,
        {"gpus": list(gpus)},
    )
    return {gpu: list(some) for gpu, some in groupby(rows, lambda row: row["gpu"])}


def read_health(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Return the providers: those that need attention first, those never asked last."""
    return read_rows(
        connection,
        """
        select provider, provider_name, health, scopes, scopes_ok, scopes_truncated,
            scopes_baseline, offers, offers_unknown_gpu, rejects, oldest_ok_at, newest_ok_at,
            age_hours, last_attempt_at, last_error, pricing_url
        from marts.provider_health
        order by
            list_position(
                ['failed', 'held', 'cut short', 'partly baseline', 'ok', 'skipped', 'baseline'],
                health
            ),
            lower(provider_name), provider
        """,
    )


# --- charts -----------------------------------------------------------------------------------


def history_spec(first: date, last: date) -> dict[str, Any]:
    """Return the Vega-Lite chart that every GPU's history is drawn with, without its data.

    Colours are left to the page's style, which knows light from dark and finds the marks by the
    names of their layers.
    """
    import altair as alt

    base = alt.Chart(alt.NamedData("history")).encode(
        x=alt.X("day:T", title=None)
        .scale(type="utc", domain=[first.isoformat(), last.isoformat()])
        .axis(
            format="%b ’%y" if (last - first).days > 120 else "%d %b",
            tickCount=5,
            labelBound=True,
            labelOverlap="greedy",
            labelSeparation=10,
            grid=False,
        ),
        # The same room for every label, so that the charts line up.
        y=alt.Y("usd:Q", title=None)
        .scale(zero=True)
        .axis(format="$~f", tickCount=3, minExtent=38, maxExtent=38),
    )
    tooltip = [
        alt.Tooltip("on:N", title="day"),
        alt.Tooltip("usd:Q", title="USD per GPU-hour", format=".3f"),
        alt.Tooltip("provider:N", title="provider"),
        alt.Tooltip("region:N", title="region"),
        alt.Tooltip("from:N", title="from"),
    ]
    live = base.transform_filter("!datum.is_baseline")
    baseline = (
        base.transform_filter("datum.is_baseline")
        .mark_point(shape="circle", size=22, strokeWidth=1.25, fillOpacity=0)
        .encode(tooltip=tooltip)
        .properties(name="baseline")
    )
    line = (
        live.mark_line(interpolate="step-after", strokeWidth=1.75)
        .encode(detail="segment:N", order="day:T")
        .properties(name="live")
    )
    # Every day can be pointed at; drawn are only those that no line shows.
    days = (
        live.mark_point(shape="circle", filled=True)
        .encode(
            size=alt.condition("datum.is_alone", alt.value(24), alt.value(80)),
            opacity=alt.condition("datum.is_alone", alt.value(1), alt.value(0)),
            tooltip=tooltip,
        )
        .properties(name="days")
    )
    spec: dict[str, Any] = (
        alt.layer(baseline, line, days)
        .properties(
            width="container",
            height=140,
            autosize=alt.AutoSizeParams(type="fit", contains="padding"),
        )
        .configure(
            background="transparent",
            font="system-ui, sans-serif",
            view=alt.ViewConfig(stroke=None),
            axis=alt.AxisConfig(domain=False, ticks=False, labelFontSize=11, labelPadding=6),
        )
        .to_dict()
    )
    return spec


def charts_script() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that can stand inside HTML."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("globalThis.vegaEmbed = vegaEmbed;")
    # Inside JavaScript's strings and patterns both spellings mean the same; HTML reads only one.
    return bundle.replace("</script", r"<\/script").replace("<!--", r"<\!--")


# --- rendering --------------------------------------------------------------------------------


def make_environment(written_at: datetime) -> Environment:
    """Return the templates' environment: everything escaped, a missing name an error."""
    environment = Environment(
        loader=PackageLoader("dashboards"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"default": plain, "separators": (",", ":")}
    environment.filters |= {
        "usd": write_usd,
        "rate": write_rate,
        "age": write_age,
        "hours": write_hours,
        "day": write_day,
        "minute": write_minute,
        "iso": write_iso,
        "tokens": write_tokens,
        "web_link": web_link,
    }
    environment.globals |= {"methods": METHODS, "markets": MARKETS, "states": STATES}
    return environment


def packaged(name: str) -> str:
    """Return the text of a file that lies with the templates."""
    return resources.files("dashboards").joinpath("templates", name).read_text(encoding="utf-8")


def content_hash(script: str) -> str:
    """Return a script's hash as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def plain(value: object) -> str:
    """Write a date for JSON.

    Raises:
        TypeError: it is no date.
    """
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} does not belong in the page's data")


def write_usd(amount: float) -> str:
    """Write a cost: cents, whole dollars from a thousand on, four places below ten cents."""
    if amount >= 1000:
        return f"${amount:,.0f}"
    return f"${amount:.4f}" if 0 < amount < 0.1 else f"${amount:.2f}"


def write_rate(amount: float) -> str:
    """Write a price per hour, where a tenth of a cent counts."""
    return f"${amount:,.2f}" if amount >= 10 else f"${amount:.3f}"


def write_hours(hours: float) -> str:
    """Write a duration in the unit that reads best."""
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:,.1f} days"


def write_age(hours: float | None) -> str:
    """Write how long ago something was; page.js keeps the same words up to date."""
    if hours is None:
        return "never"
    if hours < 1:
        return f"{max(hours, 0) * 60:.0f} min ago"
    return f"{hours:.0f} h ago" if hours < 48 else f"{hours / 24:,.0f} days ago"


def write_day(time: date) -> str:
    """Write a day, as in 2 Dec 2026."""
    return f"{time.day} {time:%b %Y}"


def write_minute(time: datetime) -> str:
    """Write a time that is in UTC, to the minute."""
    return f"{write_day(time)}, {time:%H:%M} UTC"


def write_iso(time: datetime) -> str:
    """Write a time that is in UTC for a machine."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def write_tokens(tokens: float) -> str:
    """Write a number of tokens, as in 10M."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.3g}{unit}"
    return f"{tokens:.0f}"


def web_link(address: str | None) -> str | None:
    """Return an address when a browser may open it: never `javascript:` or a local file."""
    if address is None:
        return None
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    return address if parts.scheme in ("http", "https") and parts.netloc else None
