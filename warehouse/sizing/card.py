"""A GPU as sizing sees it: memory, rates, links. One row of the `gpus` seed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

_HOST_GBPS_BY_PCIE: Final = {3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
"""Usable GB/s per direction of a x16 slot: about three quarters of the signalling rate
(PCI-SIG: 16, 32, 64, 128 GB/s)."""


def _number(row: Mapping[str, object], name: str) -> float | None:
    value = row.get(name)
    if value is None or value == "":
        return None
    return float(str(value))


def _first_number(row: Mapping[str, object], name: str) -> float | None:
    """Read `700` out of a range such as `700-1000`."""
    found = re.match(r"\d+(\.\d+)?", str(row.get(name) or ""))
    return float(found[0]) if found else None


def _flag(row: Mapping[str, object], name: str) -> bool:
    value = row.get(name)
    if isinstance(value, bool):
        return value
    return str(value or "").strip().lower() in ("yes", "true", "1")


@dataclass(frozen=True)
class Card:
    """One GPU model.

    Memory in GiB, bandwidths in GB/s (10^9 bytes), rates in dense TFLOPS (no sparsity, FP32
    accumulation). None where no source states it. `interconnect_gbps` is the sum of both
    directions per GPU; 0 where GPUs only meet over PCIe.
    """

    gpu: str
    vendor: str
    architecture: str
    vram_gib_usable: float | None
    mem_bandwidth_gbps: float
    bf16_dense_tflops: float | None
    fp16_dense_tflops: float | None
    fp8_dense_tflops: float | None
    int8_dense_tops: float | None
    fp32_tflops: float | None
    bf16_supported: bool
    fp4_tensor: bool
    interconnect: str
    interconnect_gbps: float
    pcie_gen: int | None
    tdp_watts: float | None
    gpu_class: str
    compute_capability: str

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> Self:
        """Read a row of the `gpus` seed.

        Raises:
            ValueError: the name or the memory bandwidth is missing, or a number is not one.
        """
        gpu = str(row.get("gpu") or "")
        bandwidth = _number(row, "mem_bandwidth_gbps")
        if not gpu or not bandwidth:
            raise ValueError(f"gpus seed: no name or no memory bandwidth in {gpu or row!r}")
        usable = _number(row, "vram_gib_usable")
        pcie = _first_number(row, "pcie_gen")
        return cls(
            gpu=gpu,
            vendor=str(row.get("vendor") or ""),
            architecture=str(row.get("architecture") or ""),
            vram_gib_usable=usable if usable is not None else _number(row, "vram_gb"),
            mem_bandwidth_gbps=bandwidth,
            bf16_dense_tflops=_number(row, "bf16_dense_tflops"),
            fp16_dense_tflops=_number(row, "fp16_dense_tflops"),
            fp8_dense_tflops=_number(row, "fp8_dense_tflops"),
            int8_dense_tops=_number(row, "int8_dense_tops"),
            fp32_tflops=_number(row, "fp32_tflops"),
            bf16_supported=_flag(row, "bf16_supported"),
            fp4_tensor=_flag(row, "fp4_tensor"),
            interconnect=str(row.get("interconnect") or ""),
            interconnect_gbps=_number(row, "interconnect_gbps_total_bidir_per_gpu") or 0.0,
            pcie_gen=int(pcie) if pcie is not None else None,
            tdp_watts=_first_number(row, "tdp_watts"),
            gpu_class=str(row.get("class") or ""),
            compute_capability=str(row.get("compute_capability") or ""),
        )

    @cached_property
    def architecture_key(self) -> str:
        """The family that shares efficiency: `ampere-hbm`, `ampere-gddr`, `hopper`, `cdna`, ..."""
        word = re.split(r"[\s+]", self.architecture.strip().lower(), maxsplit=1)[0]
        word = re.sub(r"^cdna\d?$", "cdna", word)
        memory = "hbm" if "hbm" in self.gpu_class else "gddr"
        return f"{word}-{memory}"

    @cached_property
    def generation(self) -> str:
        """The process generation: `ampere`, `hopper`, `cdna3`, ..."""
        return re.split(r"[\s+]", self.architecture.strip().lower(), maxsplit=1)[0]

    @cached_property
    def host_gbps(self) -> float:
        """GB/s per direction between the card and its host; PCIe 3 where not stated."""
        return _HOST_GBPS_BY_PCIE.get(self.pcie_gen or 3, 12.0)

    @cached_property
    def has_fast_links(self) -> bool:
        """GPUs of one machine meet over a switched fabric, not over PCIe or an optional bridge."""
        return self.interconnect_gbps > 0 and "bridge" not in self.interconnect.lower()

    @cached_property
    def peer_gbps(self) -> float:
        """GB/s per direction between two GPUs of one machine, as usually rented."""
        return self.interconnect_gbps / 2 if self.has_fast_links else self.host_gbps

    @cached_property
    def in_rack_fabric(self) -> bool:
        """Machines of one rack share the GPUs' own fabric (NVL72: 72 GPUs)."""
        return "nvl72" in self.interconnect.lower()
