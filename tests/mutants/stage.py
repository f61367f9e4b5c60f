"""What all layers share: the port that they drive, what they drive it with, and what a finding is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

TESTS: Final = Path(__file__).resolve().parents[1]

Found = dict[str, Any]
"""`rules`, the most telling first; `steps` of the counterexample, None where there is none; `what` in a few words."""

SAMPLE: Final = 40
"""Commands of a random run."""

RULE: Final = re.compile(r"\b[A-Z]{3}-[1-9]\b")


KEPT: Final[dict[str, Any]] = {}
"""What a server has prepared: the runs, the scenarios, and of each level the graph and some walks with their cases."""


class SturdyPort:
    """The packaged port; where it would end the process, it raises, and the judge can say after which steps.

    `new` never fails for what the run before it left behind: then the port is replaced.
    """

    def __init__(self) -> None:
        """Makes the port."""
        from provider_concurrency.port import Port

        self._make = Port
        self._port = Port()

    def handle(self, message: dict[str, Any]) -> Any:
        """The port's interface."""
        if message["cmd"] == "new":
            try:
                self._port.shut()
            except (Exception, SystemExit):  # noqa: BLE001 - the last run has been judged
                self._port = self._make()
        try:
            return self._port.handle(message)
        except SystemExit as end:
            raise RuntimeError(f"the port ended the process: {end}") from end


def runs() -> list[tuple[str, Any, list[Any]]]:
    """What everybody drives."""
    return KEPT["runs"] if KEPT else list(make_runs())


def make_runs() -> Iterator[tuple[str, Any, list[Any]]]:
    """The commands of all scenarios, the short ones first, then random ones: (name, configuration, commands)."""
    from provider_concurrency_model.random_runs import random_run
    from provider_concurrency_spec.scenarios import load_all

    scenarios = sorted(load_all(), key=lambda scenario: len(scenario.steps))
    for scenario in scenarios:
        if scenario.steps:
            yield scenario.name, scenario.config, [step.command for step in scenario.steps]
    for seed in range(100):
        config, commands = random_run(seed, SAMPLE)
        yield f"seed {seed}", config, list(commands)
