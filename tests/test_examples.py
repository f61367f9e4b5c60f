"""The README's examples for the SDKs, run as they stand against the provider that lags."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from lagging_provider import Behaviour, lagging_provider

pytestmark = pytest.mark.realtime
EXAMPLES = Path(__file__).parent / "examples"
BEHAVIOUR = Behaviour(limit=4, lag="fixed:0.3", service=0.1, penalty=60.0)


@pytest.mark.parametrize(
    ("name", "key", "url", "root"),
    [
        ("openai_sdk.py", "OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
        ("openai_sdk_blocking.py", "OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
        ("anthropic_sdk.py", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    ],
)
def test_an_example_as_it_stands(name: str, key: str, url: str, root: str) -> None:
    async def run() -> None:
        async with lagging_provider(BEHAVIOUR) as provider:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-W",
                "error",
                str(EXAMPLES / name),
                env=os.environ | {key: "none", url: provider.url + root},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await asyncio.wait_for(process.communicate(), 60)
            assert (process.returncode, err.decode()) == (0, "")
            assert out.decode().count("'w ") == 12
            figures = provider.figures
            assert (figures.finished, figures.overshoots, figures.refused, figures.peak) == (12, 0, 0, 4)

    asyncio.run(run())
