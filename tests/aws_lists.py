"""AWS price lists that tests write: rows under the columns of a recorded case."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scrapers.providers import aws
from tests.evidence import SHARED

_RECORDED = Path(__file__).parent / "payloads" / "aws" / "markets" / "ec2-us-east-1.csv"
MARKETS = _RECORDED.read_text(encoding="utf-8").splitlines(keepends=True)
PREAMBLE, HEADER = MARKETS[:5], next(csv.reader([MARKETS[5]]))


def machine(name: str = "p5.48xlarge", price: str = "50.0000000000", **changes: str) -> Any:
    """An on-demand Linux row; the keywords are column names with _ for a space."""
    row = {
        "SKU": f"SKU-{name}",
        "OfferTermCode": "JRTCKXETXF",
        "TermType": "OnDemand",
        "PriceDescription": f"${price} per On Demand Linux {name} Instance Hour",
        "EffectiveDate": "2026-02-01",
        "StartingRange": "0",
        "EndingRange": "Inf",
        "Unit": "Hrs",
        "PricePerUnit": price,
        "Currency": "USD",
        "Product Family": "Compute Instance",
        "Location": "US East (N. Virginia)",
        "Location Type": "AWS Region",
        "Instance Type": name,
        "Instance Family": "GPU instance",
        "Tenancy": "Shared",
        "Operating System": "Linux",
        "License Model": "No License required",
        "usageType": f"BoxUsage:{name}",
        "operation": "RunInstances",
        "CapacityStatus": "Used",
        "MarketOption": "OnDemand",
        "Pre Installed S/W": "NA",
        "Region Code": "us-east-1",
    }
    return row | {key.replace("__", "/").replace("_", " "): v for key, v in changes.items()}


def as_csv(rows: Iterable[dict[str, str]], header: list[str] = HEADER) -> bytes:
    """Write rows as a whole list."""
    lines = [",".join(f'"{c}"' for c in header)]
    lines += [",".join(f'"{row[c]}"' if row.get(c) else "" for c in header) for row in rows]
    return ("".join(PREAMBLE) + "\n".join(lines) + "\n").encode()


def rows_of_pricing_page() -> dict[tuple[str, str], dict[str, str]]:
    """The captured rows of AWS's pricing page by region and type."""
    path = SHARED / "payloads/aws/metered_unit_maps_ec2_ondemand_gpu_2026-09.json"
    codes = {name: code for code, name in aws.REGIONS.items()}
    return {
        (codes[row["Location"]], row["Instance Type"]): row
        for page in json.loads(path.read_text(encoding="utf-8")).values()
        for rows in page["regions"].values()
        for row in rows.values()
    }


def lists_of_pricing_page() -> dict[str, bytes]:
    """The same rows as one list a region: no whole list was captured."""
    rows = rows_of_pricing_page()
    return {
        region: as_csv(
            machine(
                name,
                row["price"],
                Region_Code=region,
                Location=row["Location"],
                EffectiveDate="2026-09-01",
                Operating_System=row["Operating System"],
            )
            for (where, name), row in rows.items()
            if where == region
        )
        for region in sorted({region for region, _ in rows})
    }
