"""What a run takes beside its tensors: allocator slack, CUDA context, communication."""

from __future__ import annotations

from warehouse.sizing.setup import Setup


def spread(
    live_gib: float, metric: str, setup: Setup, gpu: str | None
) -> tuple[float, float, float]:
    """Low, likely and high peak for a metric, from the bytes of live tensors.

    Args:
        live_gib: the peak of live tensors.
        metric: "live", "allocated", "reserved" or "device".
        setup: the set-up; its GPU count decides communication buffers.
        gpu: the card's name, or None.

    Returns:
        The 5th percentile, the median and the 95th percentile in GiB.
    """
    if metric == "live":
        return live_gib * 0.98, live_gib, live_gib * 1.03
    allocated = live_gib + 0.03
    if metric == "allocated":
        return allocated * 0.93, allocated, allocated * 1.1
    reserved = allocated * 1.08 + 0.1
    if metric == "reserved":
        return reserved * 0.9, reserved, reserved * 1.3
    context = 0.5 + (1.5 if setup.gpus > 1 else 0.0)
    device = reserved + context
    return device * 0.88, device, device * 1.35
