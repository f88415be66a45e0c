"""Read a 300 MB price list of one AWS region: our parser beside a bare DuckDB scan of the file.

    python -m benchmarks.aws_bulk [--megabytes 300] [--repeat 3]

The file is made in a temporary folder in the shape of AmazonEC2/current/<region>/index.csv: five
lines of preamble, the header of 2025, every price of a product with all its columns repeated. About
one row in a thousand is one that the parser keeps. Each reader runs in a process of its own, all in
turn; the figures are the best time of the repeats and the highest peak of resident memory. What
counts are the ratios in the last lines: at least half of DuckDB's speed, on the bare file and as
the archive packs it, in less than 500 MB.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import multiprocessing
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# fmt: off
COLUMNS = [
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate",
    "StartingRange", "EndingRange", "Unit", "PricePerUnit", "Currency", "RelatedTo",
    "LeaseContractLength", "PurchaseOption", "OfferingClass", "Product Family", "serviceCode",
    "Location", "Location Type", "Instance Type", "Current Generation", "Instance Family", "vCPU",
    "Physical Processor", "Clock Speed", "Memory", "Storage", "Network Performance",
    "Processor Architecture", "Storage Media", "Volume Type", "Max Volume Size",
    "Max IOPS/volume", "Max IOPS Burst Performance", "Max throughput/volume", "Provisioned",
    "Tenancy", "EBS Optimized", "Operating System", "License Model", "Group",
    "Group Description", "Transfer Type", "From Location", "From Location Type", "To Location",
    "To Location Type", "usageType", "operation", "AvailabilityZone", "CapacityStatus",
    "ClassicNetworkingSupport", "Dedicated EBS Throughput", "ECU", "Elastic Graphics Type",
    "Enhanced Networking Supported", "From Region Code", "GPU", "GPU Memory", "Instance",
    *(f"Instance Capacity - {s}" for s in (
        "10xlarge", "12xlarge", "16xlarge", "18xlarge", "24xlarge", "2xlarge", "32xlarge",
        "4xlarge", "8xlarge", "9xlarge", "large", "medium", "metal", "xlarge",
    )),
    "instanceSKU", "Intel AVX2 Available", "Intel AVX Available", "Intel Turbo Available",
    "MarketOption", "Normalization Size Factor", "Physical Cores", "Pre Installed S/W",
    "Processor Features", "Product Type", "Region Code", "Resource Type", "serviceName",
    "SnapshotArchiveFeeType", "To Region Code", "Volume API Name", "VPCNetworkingSupport",
]
PLAIN = ["c6i", "m7g", "r7iz", "t3", "m5", "x2idn", "i4i", "c7gn", "r6a", "m6idn", "hpc7a"]
SIZES = ["large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge", "24xlarge"]
ACCELERATED = ["g4dn.xlarge", "g5.12xlarge", "g6f.large", "p4d.24xlarge", "p5.48xlarge"]
SYSTEMS = [("Linux", "RunInstances"), ("Windows", "RunInstances:0002"),
           ("RHEL", "RunInstances:0010"), ("SUSE", "RunInstances:000g"),
           ("Red Hat Enterprise Linux with HA", "RunInstances:1010")]
SOFTWARE = ["NA", "SQL Std", "SQL Web", "SQL Ent"]
USES = [("Used", "BoxUsage"), ("UnusedCapacityReservation", "UnusedBox"),
        ("AllocatedCapacityReservation", "Reservation")]
# fmt: on
TERMS = [
    ("Reserved", code, years, option, kind)
    for code, (years, option, kind) in enumerate(
        itertools.product(
            ("1yr", "3yr"),
            ("No Upfront", "Partial Upfront", "All Upfront"),
            ("standard", "convertible"),
        )
    )
]
PREAMBLE = (
    '"FormatVersion","v1.0"\n'
    '"Disclaimer","A synthetic list in the shape of a bulk price list; not a price of anything"\n'
    '"Publication Date","2026-01-01T00:00:00Z"\n"Version","20260101000000"\n'
    '"OfferCode","AmazonEC2"\n'
)


def _line(cells: dict[str, str]) -> str:
    # AWS quotes every cell that is not empty
    return ",".join(f'"{cells[c]}"' if c in cells else "" for c in COLUMNS) + "\n"


def make_rows(seed: int = 1) -> Iterator[str]:
    """Yield lines for ever: products of all systems, tenancies and uses with all their terms."""
    draw = random.Random(seed)
    types = [f"{family}.{size}" for family in PLAIN for size in SIZES] + ACCELERATED
    for number, name in enumerate(itertools.cycle(types)):
        is_gpu = name in ACCELERATED
        for (system, operation), software, (status, usage), tenancy in itertools.product(
            SYSTEMS, SOFTWARE, USES, ("Shared", "Dedicated", "Host")
        ):
            sku = f"{draw.getrandbits(80):020X}"[:16]
            product = {
                "SKU": sku, "EffectiveDate": "2026-01-01", "Currency": "USD",
                "Product Family": "Compute Instance", "serviceCode": "AmazonEC2",
                "Location": "US East (N. Virginia)", "Location Type": "AWS Region",
                "Instance Type": name, "Current Generation": "Yes",
                "Instance Family": "GPU instance" if is_gpu else "General purpose",
                "vCPU": "48", "Physical Processor": "Intel Xeon Platinum 8259 (Cascade Lake)",
                "Clock Speed": "2.5 GHz", "Memory": "192 GiB", "Storage": "1 x 900 NVMe SSD",
                "Network Performance": "50 Gigabit", "Processor Architecture": "64-bit",
                "Tenancy": tenancy, "Operating System": system,
                "License Model": "No License required",
                "usageType": f"{usage}:{name}", "operation": operation, "AvailabilityZone": "NA",
                "CapacityStatus": status, "ClassicNetworkingSupport": "false",
                "Dedicated EBS Throughput": "9500 Mbps", "ECU": "NA",
                "Enhanced Networking Supported": "Yes", "GPU Memory": "NA",
                "Intel AVX2 Available": "Yes", "Intel AVX Available": "Yes",
                "Intel Turbo Available": "Yes", "MarketOption": "OnDemand",
                "Normalization Size Factor": "96", "Pre Installed S/W": software,
                "Processor Features": "Intel AVX; Intel AVX2; Intel AVX512; Intel Turbo",
                "Region Code": "us-east-1", "serviceName": "Amazon Elastic Compute Cloud",
                "VPCNetworkingSupport": "true",
            }  # fmt: skip
            if is_gpu:
                product["GPU"] = "1"
            price = f"{draw.uniform(0.05, 60):.10f}"
            yield _line(
                product
                | {
                    "OfferTermCode": "JRTCKXETXF",
                    "RateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7",
                    "TermType": "OnDemand",
                    "PriceDescription": f"${price} per On Demand {system} {name} Instance Hour",
                    "StartingRange": "0",
                    "EndingRange": "Inf",
                    "Unit": "Hrs",
                    "PricePerUnit": price,
                }
            )
            for term_type, code, years, option, kind in TERMS if status == "Used" else ():
                term = product | {
                    "OfferTermCode": f"TERM{code:06d}",
                    "TermType": term_type,
                    "LeaseContractLength": years,
                    "PurchaseOption": option,
                    "OfferingClass": kind,
                }
                if option != "No Upfront":
                    yield _line(
                        term
                        | {
                            "RateCode": f"{sku}.TERM{code:06d}.2TG2D8R56U",
                            "PriceDescription": "Upfront Fee",
                            "Unit": "Quantity",
                            "PricePerUnit": str(1000 + code),
                        }
                    )
                yield _line(
                    term
                    | {
                        "RateCode": f"{sku}.TERM{code:06d}.6YS6EN2CT7",
                        "PriceDescription": f"{system}, {name} reserved instance applied",
                        "StartingRange": "0",
                        "EndingRange": "Inf",
                        "Unit": "Hrs",
                        "PricePerUnit": "0.0000000000" if option == "All Upfront" else price,
                    }
                )
        if number % 10 == 0:
            yield _line(
                {
                    "SKU": f"{draw.getrandbits(80):020X}"[:16], "TermType": "OnDemand",
                    "OfferTermCode": "JRTCKXETXF", "EffectiveDate": "2026-01-01",
                    "StartingRange": "0", "EndingRange": "Inf", "Unit": "GB-Mo",
                    "PricePerUnit": "0.0800000000", "Currency": "USD",
                    "Product Family": "Storage", "Location": "US East (N. Virginia)",
                    "Location Type": "AWS Region", "usageType": "EBS:VolumeUsage.gp3",
                    "Region Code": "us-east-1", "Volume API Name": "gp3",
                }
            )  # fmt: skip


def make_file(path: Path, size_bytes: int) -> int:
    """Write a list of about this size and return its rows."""
    written = count = 0
    with path.open("w", encoding="utf-8", newline="") as out:
        out.write(PREAMBLE + ",".join(f'"{c}"' for c in COLUMNS) + "\n")
        for line in make_rows():
            out.write(line)
            written, count = written + len(line), count + 1
            if written >= size_bytes:
                return count
    return count


def parse_list(path: Path) -> int:
    """Read the list as the nightly run does; return the rows that it gave."""
    from scrapers.pages import Page
    from scrapers.providers import aws

    name = "ec2-us-east-1"
    return sum(1 for _ in aws.parse({name: [Page(name=name, path=path)]}))


def scan_with_duckdb(path: Path) -> int:
    """Count the rows, every cell text: the least that DuckDB's CSV reader can do."""
    import duckdb

    source = f"read_csv('{path}', skip = 5, header = true, all_varchar = true)"
    return int(duckdb.sql(f"select count(*) from {source}").fetchall()[0][0])


def filter_with_duckdb(path: Path) -> int:
    """Pick the rows of accelerated Linux machines and their prices."""
    import duckdb

    source = f"read_csv('{path}', skip = 5, header = true, all_varchar = true)"
    rows = duckdb.sql(
        f"""select "Instance Type", "TermType", "Unit", "PricePerUnit" from {source}
        where "Operating System" = 'Linux' and "Tenancy" = 'Shared' and "CapacityStatus" = 'Used'
        and "Pre Installed S/W" = 'NA' and "Instance Family" = 'GPU instance'"""
    )
    return len(rows.fetchall())


def _measure(reader: Callable[[Path], int], path: Path, pipe: object) -> None:
    started = time.perf_counter()
    rows = reader(path)
    seconds = time.perf_counter() - started
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.send((rows, seconds, peak_kib / 1024))  # type: ignore[attr-defined]


def run_apart(reader: Callable[[Path], int], path: Path) -> tuple[int, float, float]:
    """Run a reader in a fresh process; return rows, seconds and peak resident MiB."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(reader, path, there))
    process.start()
    there.close()
    try:
        result: tuple[int, float, float] = here.recv()
    finally:
        process.join()
    return result


def main() -> None:
    """Make the file, run each reader in turn, and print times, memory and ratios."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    asked.add_argument("--megabytes", type=int, default=300)
    asked.add_argument("--repeat", type=int, default=3)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder) / "ec2-us-east-1.csv", Path(folder) / "ec2-us-east-1.csv.gz"
        rows = make_file(plain, options.megabytes * 1_000_000)
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        print(f"{plain.stat().st_size / 1e6:.0f} MB, {rows} rows; Python {sys.version.split()[0]}")
        runs = [
            ("our parser", parse_list, plain),
            ("DuckDB, bare scan", scan_with_duckdb, plain),
            ("DuckDB, filter", filter_with_duckdb, plain),
            ("our parser, gzip", parse_list, packed),
            ("DuckDB, bare scan, gzip", scan_with_duckdb, packed),
        ]
        best: dict[str, tuple[int, float, float]] = {}
        for _ in range(options.repeat):
            for name, reader, path in runs:
                count, seconds, peak = run_apart(reader, path)
                _, least, most = best.get(name, (0, seconds, peak))
                best[name] = (count, min(least, seconds), max(most, peak))
    for name, (count, seconds, peak) in best.items():
        speed = options.megabytes / seconds
        print(f"{name:24} {seconds:6.2f} s  {speed:5.0f} MB/s  peak {peak:5.0f} MiB  {count} rows")
    for kind in ("", ", gzip"):
        ours, theirs = best[f"our parser{kind}"], best[f"DuckDB, bare scan{kind}"]
        print(f"speed beside a bare DuckDB scan{kind}: {theirs[1] / ours[1]:.2f} (wanted: 0.5)")
    most = max(peak for name, (_, _, peak) in best.items() if name.startswith("our"))
    print(f"peak memory against 500 MB: {most * 1.048576 / 500:.2f} (wanted: below 1)")


if __name__ == "__main__":
    main()
