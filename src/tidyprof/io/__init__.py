"""Bytes, CSV and SQLite from elsewhere, read without trusting them, and the one error about them."""
