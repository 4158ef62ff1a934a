"""Clients as programs of their own, for the interpreters that have them: each prints one JSON object for its test."""
