"""Where the evidence lies that tests compare with, and how a test says that it is not there."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

needs_evidence = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the captured evidence (../shared) is not beside this checkout"
)
