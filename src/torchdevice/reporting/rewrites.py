"""Suggests how a line of user code could be written without naming a device: one row per pattern. Edits nothing."""

from __future__ import annotations

import re

HERE = 'torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")'
PRELUDE = f"device = {HERE}"
DEFAULT = "torch.set_default_device(device)"

_TYPE = r"(?:cuda|mps|xpu|hpu|npu|mlu|musa|mtia)"
_QUOTED = rf"(?:(['\"]){_TYPE}(?::[^'\"]*)?\1)"

_NAMED = rf"(?:(?P<quote>['\"]){_TYPE}(?::[^'\"]*)?(?P=quote))"

# Names of torch.cuda (torch.xpu, torch.mps) with an equivalent in torch.accelerator. Most of the equivalents raise an
# error on a host without an accelerator. So a rewrite calls an action only if there is an accelerator, and a query has
# a separate value for the CPU.
_ACCELERATOR_NAMES = {
    "is_available": "is_available",
    "device_count": "device_count",
    "current_device": "current_device_index",
    "set_device": "set_device_index",
    "synchronize": "synchronize",
    "current_stream": "current_stream",
    "set_stream": "set_stream",
    "empty_cache": "empty_cache",
    "memory_stats": "memory_stats",
    "memory_allocated": "memory_allocated",
    "max_memory_allocated": "max_memory_allocated",
    "memory_reserved": "memory_reserved",
    "max_memory_reserved": "max_memory_reserved",
    "reset_peak_memory_stats": "reset_peak_memory_stats",
}
_DOING = ("set_device", "synchronize", "set_stream", "empty_cache", "reset_peak_memory_stats")
_ON_CPU = {
    "current_device": "0",
    "memory_stats": "{}",
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), "0"),
}
_IF_THERE = "if torch.accelerator.is_available()"
_CALL = r"(\([^()]*\))"

_ROWS: tuple[tuple[str, str], ...] = (
    (rf"(?<==)\s*torch\.device\(\s*{_QUOTED}\s*\)$", f" {HERE}"),
    (rf"torch\.device\(\s*{_QUOTED}\s*\)", "device"),
    (rf"\bdevice\s*=\s*{_QUOTED}", "device=device"),
    (rf"\bmap_location\s*=\s*{_QUOTED}", "map_location=device"),
    (rf"\.to\(\s*{_QUOTED}", ".to(device"),
    (rf"\.{_TYPE}\(\s*\)", ".to(device)"),
    (rf"\.{_TYPE}\(\s*(non_blocking\s*=\s*\w+)\s*\)", r".to(device, \1)"),
    (rf"(?<!torch)\.{_TYPE}\((?:[\w.\[\]]+)\)", ".to(device)"),
    (rf"torch\.{_TYPE}\.amp\.autocast\(\s*\)", "torch.autocast(device.type)"),
    (rf"torch\.{_TYPE}\.amp\.autocast\(", "torch.autocast(device.type, "),
    (
        rf"torch\.(?:amp\.)?autocast\(\s*(device_type\s*=\s*)?{_QUOTED.replace('1', '2')}",
        r"torch.autocast(\1device.type",
    ),
    (rf"torch\.{_TYPE}\.amp\.GradScaler\(\s*\)", "torch.amp.GradScaler(device.type)"),
    (rf"torch\.{_TYPE}\.amp\.GradScaler\(", "torch.amp.GradScaler(device.type, "),
    (rf"torch\.amp\.GradScaler\(\s*{_QUOTED}", "torch.amp.GradScaler(device.type"),
    (
        r"init_process_group\(\s*(backend\s*=\s*)?(['\"])nccl\2",
        r"init_process_group(\1torch.distributed.get_default_backend_for_device(device)",
    ),
    (rf"torch\.{_TYPE}\.manual_seed(?:_all)?\(", "torch.manual_seed("),
    *(
        (rf"^torch\.{_TYPE}\.{old}{_CALL}$", rf"{_IF_THERE}: torch.accelerator.{_ACCELERATOR_NAMES[old]}\1")
        for old in _DOING
    ),
    *(
        (rf"torch\.{_TYPE}\.{old}{_CALL}", rf"(torch.accelerator.{_ACCELERATOR_NAMES[old]}\1 {_IF_THERE} else {other})")
        for old, other in _ON_CPU.items()
    ),
    *((rf"torch\.{_TYPE}\.{old}\b", f"torch.accelerator.{new}") for old, new in _ACCELERATOR_NAMES.items()),
    (rf"torch\.Generator\(\s*{_QUOTED}", "torch.Generator(device"),
)
REWRITES = tuple((re.compile(pattern), replacement) for pattern, replacement in _ROWS)
# Lines that store the name of a device for a later request, in a variable or as the default of an option.
_STORED: tuple[tuple[str, str], ...] = (
    (rf"^(?P<left>[\w.]*(?i:device)\s*=)\s*{_NAMED}(?=\s*(?:#|$))", rf"\g<left> {HERE}"),
    (rf"(?P<left>add_argument\(.*\bdefault\s*=\s*){_NAMED}", r"\g<left>device.type"),
)
STORED = tuple((re.compile(pattern), replacement) for pattern, replacement in _STORED)


def stored(line: str) -> str | None:
    """The rewrite of a line that stores the name of a device; None for other lines."""
    for pattern, replacement in STORED:
        rewritten, found = pattern.subn(replacement, line.strip())
        if found:
            return rewritten
    return None


def suggestion(line: str, asked: str) -> str | None:
    """The line without its device type. For a line without one (`torch.zeros(2)`), a line that sets a default."""
    rewritten = line.strip()
    for pattern, replacement in REWRITES:
        rewritten = pattern.sub(replacement, rewritten)
    if rewritten != line.strip():
        return rewritten
    return DEFAULT if asked == "none given" else None
