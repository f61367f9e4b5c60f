"""All faults of the zoo."""

from __future__ import annotations

from typing import Final

from mutants.fault import Fault
from mutants.faults_admission import ADMISSION
from mutants.faults_judge import JUDGE
from mutants.faults_leaving import LEAVING
from mutants.faults_nesting import NESTING
from mutants.faults_time import TIME
from mutants.faults_words import WORDS

FAULTS: Final[tuple[Fault, ...]] = (*ADMISSION, *LEAVING, *TIME, *NESTING, *WORDS, *JUDGE)

ISSUE_2: Final = (
    "no cooldown",
    "double release frees twice",
    "a shorter pause overwrites",
    "remove_limit forgets the holders",
    "a cancel after the grant leaks the slot",
    "a release after close arms a timer",
)
"""The six faults of issue 2, which the normal test suite plants, too."""
