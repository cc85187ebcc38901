"""Tests that draw: they need Graphviz's `dot`, which `scripts/ensure_graphviz.sh` installs for `make test`."""

from __future__ import annotations

import shutil

import pytest

draws = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
