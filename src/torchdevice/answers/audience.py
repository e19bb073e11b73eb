"""Decides by the calling file who gets a replacement and who the original. Counts calls per place in user code."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torchdevice._torch.distributed import LAUNCHER
from torchdevice.answers.rows import LOSSES, TRUTH_PACKAGES, Row
from torchdevice.ledger import Key, Simulated, simulations
from torchdevice.translate.callers import INSTALLED, user_frame
from torchdevice.translate.engine import dress
from torchdevice.translate.translator import Translator
from torchdevice.twins import constant

_getframe = sys._getframe
_UNCOUNTED: Iterator[int] = itertools.repeat(0)


class Audience:
    """Chooses between replacement and original for each caller. One per process. `target` is the target's type."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.ledger = simulations
        self.places: dict[Key, Iterator[int]] = self.ledger.places
        self.target = ""
        # Pairs (wrapper, original) without a twin: torch itself gets the answer, or the original.
        self.answered: list[tuple[Any, Any]] = []
        self.truthful: list[tuple[Any, Any]] = []
        self._constants: list[tuple[Any, Any, Any]] = []  # wrapper, original, answer
        self._truthful: dict[str, bool] = {}

    def answers(self, row: Row, path: str, frame: FrameType) -> Iterator[int] | None:
        """The counter for this place, or None if the caller gets the original."""
        epoch = self.ledger.epoch  # read before any decision
        if not self.translator.in_force:
            return None
        code = frame.f_code
        if row.truth and self._gets_truth(code.co_filename):
            return None
        if self.translator.roles[code.co_filename].inner:
            return _UNCOUNTED
        tally = self.ledger.tally(
            frame,
            (path, self.target),
            lambda site: Simulated(path, row.kind.value, self.target, site, self._loss(row)),
        )
        self.ledger.remember(tally, (id(code), frame.f_lasti, path), tally.counter, epoch)
        return tally.counter

    def _loss(self, row: Row) -> str:
        """What the target lacks; a target that is not in the table has the real thing."""
        return getattr(LOSSES[row.loses], self.target, "") if row.loses else ""

    def note(self, row: Row, path: str) -> None:
        """Count an object of a replaced class that user code makes. `path` is its class."""
        frame = user_frame(_getframe(2), self.translator.roles)
        counter = self.answers(row, path, frame)
        if counter is not None:
            next(counter)

    def _gets_truth(self, filename: str) -> bool:
        known = self._truthful.get(filename)
        if known is None:
            known = self._truthful[filename] = self._reads_as_truthful(filename)
        return known

    def _reads_as_truthful(self, filename: str) -> bool:
        installed = INSTALLED.split(filename.replace(os.sep, "/"))[-1].removesuffix(".py")
        if installed == LAUNCHER:  # it counts devices to start one worker per device, on behalf of the user
            return False
        if any(f"{installed}/".startswith(f"{package}/") for package in TRUTH_PACKAGES):
            return True
        return self.translator.roles[filename].inner

    def answering(self, row: Row, path: str, original: Any, answer: Any) -> Any:
        """The wrapper of every row. It calls `original` for callers that get the original, and `answer` for others."""
        translator, places, answers = self.translator, self.places, self.answers

        def call(*args: Any, **kwargs: Any) -> Any:
            frame = _getframe(1)
            counter = places.get((id(frame.f_code), frame.f_lasti, path))
            if counter is None or translator.suspensions:
                counter = answers(row, path, frame)
                if counter is None:
                    return original(*args, **kwargs)
            next(counter)
            return answer(*args, **kwargs)

        wrapper = dress(call, original, path)
        if row.constant:
            self._constants.append((wrapper, original, answer))
        else:
            (self.truthful if row.truth else self.answered).append((wrapper, original))
        return wrapper

    def traced_twins(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yields (wrapper, original, twin) for torch's compiler, each triple once. Loads the compiler."""
        while self._constants:
            wrapper, original, answer = self._constants.pop()
            yield wrapper, original, self._twin(original, answer)

    def _twin(self, original: Any, answer: Any) -> Any:
        """The function that torch's compiler traces instead of a wrapper. It reads no frames and returns a constant."""

        def answered(*args: Any, **kwargs: Any) -> Any:
            return (answer if self.translator.in_force else original)(*args, **kwargs)

        return constant(answered)
