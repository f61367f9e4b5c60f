"""What all engines of `prove` have in common: a result, and a fault planted on purpose.

A proof shows nothing until it has been seen to fail. So each fault is one realistic line, exchanged in the text of the
kernel or of the Promela twin; the engines then work on the changed text, and the theorems named with the fault must be
refuted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from importlib import import_module, resources
from types import ModuleType
from typing import Final, Literal, TypeAlias, get_args

from provider_concurrency_spec.vocabulary import Json

Engine: TypeAlias = Literal["crosshair", "z3", "spin"]
ENGINES: Final[tuple[Engine, ...]] = get_args(Engine)

Outcome: TypeAlias = Literal["proved", "agrees", "refuted", "unknown", "skipped"]
"""proved: for all numbers. agrees: exhausted within the bound that the theorem names. unknown: a timeout, or an engine
that gave up, or a theorem that is empty. skipped: the tool isn't installed."""

Part: TypeAlias = Literal["kernel", "twin"]

_KERNEL: Final = "provider_concurrency_model.kernel"


@dataclass(frozen=True, slots=True)
class Result:
    """One theorem, and what an engine made of it."""

    theorem: str
    engine: Engine
    outcome: Outcome
    seconds: float
    says: str
    """The theorem in a line, rule ids included."""
    detail: str = ""
    """A counterexample, an invariant that was found, counts, or why it is unknown or skipped."""

    def to_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {
            "theorem": self.theorem,
            "engine": self.engine,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 3),
            "says": self.says,
            "detail": self.detail,
        }


@dataclass(slots=True)
class Stopwatch:
    """How long a theorem took."""

    started: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.started


@dataclass(frozen=True, slots=True)
class Fault:
    """One changed line."""

    name: str
    part: Part
    function: str
    """The function of the kernel that is wrong then; in the twin the inline."""
    right: str
    wrong: str
    refutes: tuple[str, ...]
    """The theorems that must fail; others may."""


class UnknownFaultError(ValueError):
    """There is no fault of that name; the message lists those that there are."""


class UnknownEngineError(ValueError):
    """There is no engine of that name; the message lists those that there are."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What the engines work on."""

    kernel: str
    twin: str
    fault: Fault | None = None

    def is_planted_in(self, part: Part) -> bool:
        """Whether a fault is in this part."""
        return self.fault is not None and self.fault.part == part


def read_texts(fault: Fault | None = None) -> Texts:
    """The kernel and the twin as they are, or with a fault."""
    package = resources.files("provider_concurrency_model")
    kernel, twin = ((package / name).read_text(encoding="utf-8") for name in ("kernel.py", "twin.pml"))
    match fault:
        case None:
            return Texts(kernel, twin)
        case Fault(part="kernel"):
            return Texts(plant(kernel, fault), twin, fault)
        case _:
            return Texts(kernel, plant(twin, fault), fault)


def plant(text: str, fault: Fault) -> str:
    """The text with the fault; its line must stand there exactly once within its function."""
    heads = (f"def {fault.function}(", f"inline {fault.function}(", f"#define {fault.function} ")
    begin = next((text.index(head) for head in heads if head in text), -1)
    end = min(
        (place for head in ("\ndef ", "\ninline ", "\n#") if (place := text.find(head, begin + 1)) > 0), default=-1
    )
    body = text[begin:end]
    if begin < 0 or body.count(fault.right) != 1:
        raise AssertionError(f"fault {fault.name}: {fault.right!r} must stand in {fault.function} exactly once")
    return text[:begin] + body.replace(fault.right, fault.wrong) + text[end:]


def load_kernel(texts: Texts) -> ModuleType:
    """The kernel as a module of its own."""
    kernel = import_module(_KERNEL)
    if not texts.is_planted_in("kernel"):
        return kernel
    module = ModuleType(_KERNEL)  # the real one's name: a dataclass looks up its module
    exec(compile(texts.kernel, "planted_kernel.py", "exec"), module.__dict__)  # our own text, one line exchanged
    return module
