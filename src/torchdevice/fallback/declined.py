"""How an executor says that it cannot. Nothing else lives here."""

from __future__ import annotations


class Declined(Exception):  # noqa: N818 - an answer, not a failure
    """This executor cannot do this call; the reason goes into the record and the next one is asked."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
