"""The soak with real clients, for a few seconds; CI runs it for a minute (`python tests/clients_soak.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

import clients_soak

pytestmark = [pytest.mark.realtime, pytest.mark.long]


@pytest.mark.filterwarnings("ignore:a stream of provider")
def test_a_short_soak_leaves_nothing_and_overruns_nobody(tmp_path: Path) -> None:
    report = clients_soak.run(6.0, tmp_path / "soak.ndjson", seed=1)
    assert report.wrong == []
    assert report.trace == "conforms"
    assert report.server["admitted"] > 5  # on a busy machine most of the time goes into importing the SDKs
    assert report.server["broken"] > 0
