"""Turns the pin, the patch series and the shim into the compiled module.

Runs at build time only (setup.py, scripts/patches and tests/build import it); nothing here is installed. One thread.
"""
