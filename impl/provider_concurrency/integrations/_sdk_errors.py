"""Lets our errors through SDKs that would take them for a broken connection, and retry it (HTT-8).

Anthropic's SDK wraps every Exception that isn't its own into APIConnectionError and tries again, so that a full queue
would be asked three times and then be called a network problem. An error that is both ours and an AnthropicError
passes. OpenAI's SDK wraps only what its HTTP library raises; there is nothing to do.
"""

from __future__ import annotations

import sys
from typing import Final, TypeVar

from provider_concurrency.errors import ProviderConcurrencyError

ErrorT = TypeVar("ErrorT", bound=ProviderConcurrencyError)

_SDKS: Final = (("anthropic", "AnthropicError"),)  # a module's name, which its user agent contains; its base error
_mixed: Final[dict[tuple[type, type], type]] = {}


def fit_sdk(error: ErrorT, user_agent: object) -> ErrorT:
    """The same error, made an error of the SDK that sent the request, too, if that SDK needs it."""
    if isinstance(user_agent, str):
        for module_name, base_name in _SDKS:
            if module_name in user_agent.lower():
                base = getattr(sys.modules.get(module_name), base_name, None)
                if isinstance(base, type) and not isinstance(error, base):
                    error.__class__ = _mix(type(error), base)
    return error


def _mix(kind: type, base: type) -> type:
    mixed = _mixed.get((kind, base))
    if mixed is None:
        namespace = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
        mixed = _mixed[kind, base] = type(kind.__name__, (kind, base), namespace)
    return mixed
