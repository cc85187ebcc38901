"""Logs of foreign stores, read as they are on disk."""
