"""A collective that has something left to do when gloo is done: results to divide, to narrow or to copy to a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

Finish = Callable[[], list[torch.Tensor]]

_waited_for: set[Any] = set()  # works are reached through C++, which does not keep their Python side


class Following(dist.Work):
    """Waits for the works before it, then finishes; what they raise is raised by whoever waits."""

    def __init__(self, before: Sequence[Any], finish: Finish) -> None:
        super().__init__()
        self._before = before
        self._finish = finish
        self._done = False
        self._future: Any = None
        _waited_for.add(self)

    def wait(self, *timeout: Any) -> bool:
        """The second time there is nothing left to do."""
        try:
            if self._future is not None:
                self._future.wait()
            elif not self._done:
                for work in self._before:
                    work.wait(*timeout)
                self._finish()
        finally:
            self._done = True
            _waited_for.discard(self)
        return True

    def is_completed(self) -> bool:
        """Whether nobody would have to wait for the others."""
        return self._done or all(work.is_completed() for work in self._before)

    def _source_rank(self) -> int:
        return int(self._before[0]._source_rank())

    def get_future(self) -> Any:
        """Done when the last step is."""
        if self._future is None:
            futures = [work.get_future() for work in self._before]
            self._future = torch.futures.collect_all(futures).then(self._finished)
            _waited_for.discard(self)
        return self._future

    def _finished(self, done: Any) -> list[torch.Tensor]:
        for part in done.value():
            part.value()  # raises what gloo raised
        return self._finish()
