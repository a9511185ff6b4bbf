"""Bytes, CSV and SQLite from elsewhere, read without trusting them."""
