"""Memory that a program expects to be shared, or to be separate, if the policy makes host and device the same.

Shared: an array and the tensor made from it. On an accelerator one is a copy of the other, so writes would be lost.
Copying a writable array causes a warning, and an array that is a copy is read-only. Separate: the input and the result
of `.cuda()` or `.cpu()`. If both names mean the same device, they are the same tensor. `Aliases` warns once per place
if such a result is kept while its memory is changed.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

from torchdevice._torch.core import RealTensor, contents_of, is_its_only_owner
from torchdevice.ledger import Changed, Site
from torchdevice.notices import warn

if TYPE_CHECKING:
    from torchdevice.translate.translator import Translator

# A place is watched for this number of calls, and all places together for the second number. After that, calls have no
# overhead from watching.
WATCHED_CALLS = 100
WATCHED_IN_ALL = 2000


def is_writable(source: Any) -> bool:
    """Whether a tensor that shares the memory of this object would see later writes to it."""
    if isinstance(source, RealTensor):
        return False
    flags = getattr(source, "flags", None)
    if flags is not None and hasattr(flags, "writeable"):
        return bool(flags.writeable)
    try:
        return not memoryview(source).readonly
    except TypeError:  # for example a list, which has no buffer
        return False


def told_of_copy(api: str, given: object) -> tuple[str, str]:
    """The reason why an array was copied, and the text of the warning."""
    reason = f"memory of {given} cannot be shared with an array"
    return reason, (
        f"{api} shares memory on the CPU; here the tensor is on {given} (policy=accelerate), so it is a copy, and "
        "later writes to the array do not change it.\n"
        "Hint: --policy portable keeps it on the CPU; device='cpu:-1' does so for one call"
    )


@dataclass(slots=True)
class _Alias:
    """A tensor that a move returned unchanged."""

    tensor: weakref.ref[Any]
    contents: Any
    references: int
    owner: bool  # no other tensor shares its memory
    record: Changed


class Aliases:
    """Watches moves that returned their own input, and detects whether this matters to a program."""

    def __init__(self) -> None:
        self.watching = True  # callers check it before `note`
        self._noted = 0
        self._calls: dict[tuple[CodeType, int], int] = {}
        self._watched: dict[tuple[CodeType, int], list[_Alias]] = {}
        self._told: set[Site] = set()

    def note(
        self, translator: Translator, tensor: Any, path: str, asked: object, given: object, depth: int = 1
    ) -> None:
        """Records that a move, called `depth` frames up, returned `tensor` itself."""
        frame = sys._getframe(depth + 1)
        place = (frame.f_code, frame.f_lasti)
        self._noted += 1
        self.watching = self._noted < WATCHED_IN_ALL
        calls = self._calls.get(place, 0)
        if calls >= WATCHED_CALLS:
            return
        self._calls[place] = calls + 1
        if translator.roles[frame.f_code.co_filename].inner:
            return
        self.look(translator)
        contents = contents_of(tensor)
        if contents is None:
            return
        references = sys.getrefcount(tensor)
        known = self._watched.setdefault(place, [])
        for each in known:
            if each.tensor() is tensor:
                # The program holds an earlier result: there are more references than when this line first ran.
                if references > each.references and contents != each.contents:
                    self._tell(each, translator)
                each.contents = contents
                return
        reason = f"{asked} and the device that it was on are both {given}"
        site = Site(frame.f_code.co_filename, frame.f_lineno)
        record = Changed(path, str(asked), "its input", reason, site)
        known.append(_Alias(weakref.ref(tensor), contents, references, is_its_only_owner(tensor), record))

    def look(self, translator: Translator) -> None:
        """Warns about results that are still held, whose memory another tensor shares, and that have changed."""
        for place, known in list(self._watched.items()):
            for each in known:
                tensor = each.tensor()
                if tensor is not None and not each.owner and contents_of(tensor) != each.contents:
                    self._tell(each, translator)
            self._watched[place] = [each for each in known if each.tensor() is not None]

    def _tell(self, alias: _Alias, translator: Translator) -> None:
        site = alias.record.site
        if site in self._told:
            return
        self._told.add(site)
        translator.ledger.enter(alias.record)
        apart = (
            "--policy portable keeps them apart" if translator.host.accelerated else "`run --as cuda` keeps them apart"
        )
        warn(
            f"{alias.record.api} returned its own input, because {alias.record.reason}; the input has changed since, "
            "and the result is still in use. With two devices, the result would be a copy.\n"
            f"Hint: {apart}; .clone() makes a copy",
            (site.file, site.line),
        )

    def clear(self) -> None:
        """Reset to the initial state."""
        self.watching, self._noted = True, 0
        self._calls.clear()
        self._watched.clear()
        self._told.clear()
