"""The console script: says which extra to install when the command's libraries are missing."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs `provider-concurrency`; exit 2 with a hint when the extra `check` isn't installed."""
    try:
        from provider_concurrency_model.check.cli import app
    except ModuleNotFoundError as missing:
        if missing.name is not None and missing.name.startswith("provider_concurrency"):
            raise
        print(
            f"provider-concurrency needs the module {missing.name!r}: pip install 'provider-concurrency[check]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    app()
