"""Masks what looks like a secret in a command line, because reports are pasted into bug reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MASK = "***"

# `--api-key`, `HF_TOKEN=`, `wandb.password`: the value that follows is always masked.
_NAME = r"(?:api|access|secret|private|auth)[-_.]?key|token|secret|passw(?:or)?d|passphrase|credentials?"
_NAMED = re.compile(rf"(?i)(?:^|[^a-z])(?:{_NAME})$")
_NAMED_VALUE = re.compile(rf"(?is)((?:^|[^a-z])(?:{_NAME})[\"']?\s*[=:]\s*[\"']?)([^\s\"'&]+)")
# Tokens of known services, and passwords in URLs, are recognised by their form.
_VALUE = re.compile(
    r"\b(?:hf_|sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|eyJ[\w-]+\.eyJ)[\w.-]{8,}"
    r"|(?<=://)[^\s/@:]*:[^\s/@]+(?=@)"
)


def without_secrets(words: Sequence[str]) -> Iterator[str]:
    """The arguments of a command line with secrets masked."""
    follows = False
    for word in words:
        if follows and not word.startswith("-"):
            yield MASK
        else:
            yield _VALUE.sub(MASK, _NAMED_VALUE.sub(rf"\g<1>{MASK}", word))
        follows = _NAMED.search(word) is not None and word.startswith("-")
