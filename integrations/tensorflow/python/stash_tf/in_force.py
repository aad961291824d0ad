# SPDX-License-Identifier: Apache-2.0
"""The session in force in this process. control.py says which it is, with its lock held; anybody may ask."""

from __future__ import annotations

from .session import Session

_session: Session | None = None
_last: Session | None = None


def current() -> Session | None:
    """The session of the last enable(), if there was no disable() after it."""
    return _session


def last() -> Session | None:
    """The session in force, or the one that was the last."""
    return _session or _last


def put(session: Session | None) -> None:
    """From now on `session` is in force, or none."""
    global _session, _last
    _last = session or _session or _last
    _session = session
