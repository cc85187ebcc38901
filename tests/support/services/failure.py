"""The one error of the services."""

from __future__ import annotations


class ServicesFailed(Exception):
    """Servers cannot be fetched, started or stopped; the message is one line for whoever typed the command."""
