"""Arrange the captured responses of ../shared/payloads in the replay layout."""

import shutil
from pathlib import Path

from tests.aws_lists import lists_of_pricing_page
from tests.evidence import SHARED

# Provider -> (replay file, capture, observed_at of the newest capture of the provider).
FILES: dict[str, dict[str, str]] = {
    "aws": {
        "spot_prices-spot.1.json": "spot_json_trimmed_2026-08-10.json",
        "spot_advisor-spot.1.json": "spot_advisor_data_2025-06.json",
    },
    "gcp": {"accelerator_page.1.html": "accelerator_optimized_pricing_page_2026-10.html"},
    "vast": {
        "offers-H100_SXM.1.json": "capture_bundles_h100_sxm_asc_2026-08.trimmed.json",
        "offers-H100_SXM.2.json": "capture_bundles_h100_sxm_desc_2026-08.trimmed.json",
        "offers-H200_NVL.1.json": "capture_bundles_h200_nvl_asc_2026-08.trimmed.json",
        "offers-B300.1.json": "capture_bundles_b300_asc_2026-08.json",
    },
    "runpod": {
        "gpu_types.1.json": "capture_graphql_gputypes_datacenters_2026-08.json",
        "data_centers.1.json": "capture_graphql_gputypes_datacenters_2026-08.json",
    },
    "scaleway": {
        "servers-fr-par-2.1.json": "capture_products_servers_fr-par-2_page1_2026-07-30.json",
        "servers-fr-par-2.2.json": "capture_products_servers_fr-par-2_page2_2026-07-30.json",
        "servers-fr-par-2.3.json": "capture_products_servers_fr-par-2_page3_2026-07-30.json",
        "availability-fr-par-2.1.json": (
            "capture_products_servers_availability_fr-par-2_page1_2026-07-30.json"
        ),
        "availability-fr-par-2.2.json": (
            "capture_products_servers_availability_fr-par-2_page2_2026-07-30.json"
        ),
        "availability-fr-par-2.3.json": (
            "capture_products_servers_availability_fr-par-2_page3_2026-07-30.json"
        ),
        "servers-fr-par-1.1.json": "capture_products_servers_fr-par-1_2026-07-30.trimmed.json",
        "availability-fr-par-1.1.json": (
            "capture_products_servers_availability_fr-par-1_2026-07-30.trimmed.json"
        ),
        "servers-pl-waw-2.1.json": "capture_products_servers_pl-waw-2_2026-07-30.trimmed.json",
        "availability-pl-waw-2.1.json": (
            "capture_products_servers_availability_pl-waw-2_2026-07-30.trimmed.json"
        ),
        "catalog.1.json": "capture_public_catalog_instances_fr-par-1_2026-07-01.json",
    },
    "oci": {"products.1.json": "products_gpu_2026-10-01.json"},
    "azure": {"vm_prices.1.json": "retail_prices_gpu_2026-09.json"},
    "linode": {
        "types.1.json": "capture_linode_types_2024-07.json",
        "volume_types.1.json": "capture_volumes_types.json",
        "transfer_prices.1.json": "capture_network_transfer_prices.json",
        "availability.1.json": "capture_regions_availability_gpu.trimmed.json",
    },
}
OBSERVED_AT = {
    "aws": "2026-09-29T00:00:00Z",
    "gcp": "2026-10-01T00:00:00Z",
    "vast": "2026-08-22T00:00:00Z",
    "runpod": "2026-08-22T00:00:00Z",
    "scaleway": "2026-07-30T00:00:00Z",
    "oci": "2026-10-01T14:18:05Z",
    "azure": "2026-09-29T00:00:00Z",
    "linode": "2025-11-01T00:00:00Z",
}


def arrange(folder: Path, providers: tuple[str, ...] = tuple(FILES)) -> Path:
    """Copy the captures to `folder/<provider>/<request>.<page>.json`.

    AWS's on-demand prices were captured from its pricing page: they are written as lists.
    """
    for provider in providers:
        target = folder / provider
        target.mkdir(parents=True)
        for name, capture in FILES[provider].items():
            shutil.copy(SHARED / "payloads" / provider / capture, target / name)
        if provider == "aws":
            for region, text in lists_of_pricing_page().items():
                (target / f"ec2-{region}.1.csv").write_bytes(text)
        (target / "observed_at").write_text(OBSERVED_AT[provider])
    return folder
