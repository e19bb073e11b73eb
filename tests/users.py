"""Tests with a second user of the machine."""

from __future__ import annotations

import os

import pytest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to another user")
