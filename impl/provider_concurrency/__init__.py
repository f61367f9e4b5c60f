"""Per-provider concurrency limits for LLM and AI APIs: a slot, once released, cools before it is used again.

    manager = ConcurrencyManager(limits={"openai": 4})
    async with manager.slot("openai"):
        ...

The rules are in SPEC.md; docstrings name the rule ids that they implement.
"""

from provider_concurrency.errors import (
    AcquireTimeoutError,
    ManagerClosedError,
    NestedAcquireError,
    ProviderConcurrencyError,
    QueueFullError,
    SlotReclaimedError,
)
from provider_concurrency.manager import ConcurrencyManager
from provider_concurrency.settings import Observer
from provider_concurrency.slot import Slot, SlotState
from provider_concurrency.status import ProviderStatus, SlotInfo

__all__ = [
    "AcquireTimeoutError",
    "ConcurrencyManager",
    "ManagerClosedError",
    "NestedAcquireError",
    "Observer",
    "ProviderConcurrencyError",
    "ProviderStatus",
    "QueueFullError",
    "Slot",
    "SlotInfo",
    "SlotReclaimedError",
    "SlotState",
]
