# SPDX-License-Identifier: Apache-2.0
"""The one exception of the package."""


class StashError(RuntimeError):
    """Something that the user has to change; the text says what was expected and what was found."""


def expected(where: str, argument: str, what: str, got: object) -> StashError:
    """An error in the form of the whole project: `function: argument: expected ..., got ...`."""
    return StashError(f"{where}: {argument}: expected {what}, got {got!r}")
