"""Runs several levels side by side: each in a process of its own, with a subject of its own.

The levels share nothing, so two cores halve the time. New processes are spawned, not forked: they behave alike on every
platform, and a fork would take threads' locks along.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from provider_concurrency_model.check.judge import ALL_LEVELS, Options, Tick, run_level
from provider_concurrency_model.check.source import Source
from provider_concurrency_model.check.subject import Session, SubjectError
from provider_concurrency_model.check.verdict import LevelReport


def run_levels_apart(
    source: Source, levels: Sequence[str], options: Options, jobs: int, tick: Tick
) -> list[LevelReport]:
    """The reports in the order of `levels`; `tick` is told how many levels are done.

    Raises SubjectError as soon as one of the processes meets it.
    """
    # The graphs take longest, so they begin; the rest fills the gaps at the end.
    by_length = sorted(levels, key=lambda level: (level in ("scenarios", "random"), ALL_LEVELS.index(level)))
    reports: dict[str, LevelReport] = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_end_with_parent) as pool:
        futures = {pool.submit(_run_alone, source, level, options): level for level in by_length}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                reports[futures[future]] = future.result()
                tick(done, len(levels))
        except BrokenProcessPool as error:
            raise SubjectError(
                f"subject {source.label!r}: its process ended while it was judged (try --jobs 1)"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
    return [reports[level] for level in levels]


def _end_with_parent() -> None:
    """However the command ends, killed for instance: nobody judges on, and the port's input ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a process of the pool"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _run_alone(source: Source, level: str, options: Options) -> LevelReport:
    session = source.open()
    try:
        report = run_level(session, level, options)
        note_farewell(session, report)
    finally:
        session.close()
    return report


def note_farewell(session: Session, report: LevelReport) -> None:
    """Ends the subject, and notes if it doesn't go as it should: no rule is broken by that."""
    farewell = session.close()
    if farewell is not None:
        report.notes.append(f"the subject doesn't part well: {farewell}")
