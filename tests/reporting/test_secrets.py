"""What of a command line a report shows."""

from __future__ import annotations

import shlex

import pytest

from torchdevice.reporting.secrets import without_secrets


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("train.py --lr 0.1 --data s3://bucket/key --epochs 3", None),
        ("train.py --tokenizer bert --keys a --tokens 7 --max-tokens=512 --secretary x", None),
        ("train.py --token abc", "train.py --token '***'"),
        ("train.py --hf-token=abc --lr 1", "train.py '--hf-token=***' --lr 1"),
        ("train.py --api_key abc --api-key=def", "train.py --api_key '***' '--api-key=***'"),
        ("train.py wandb.password=abc", "train.py 'wandb.password=***'"),
        ("train.py --password --lr 1", None),
        ("train.py hf_abcdefghijkl", "train.py '***'"),
        ("train.py --key sk-abcdef0123456789", "train.py --key '***'"),
        ("train.py https://me:hunter2@example.org/x", "train.py 'https://***@example.org/x'"),
        ("-c 'token = \"abc\"; x.cuda()'", "-c 'token = \"***\"; x.cuda()'"),
    ],
)
def test_secrets_are_masked(given: str, shown: str | None) -> None:
    assert shlex.join(without_secrets(shlex.split(given))) == (shown or given)
