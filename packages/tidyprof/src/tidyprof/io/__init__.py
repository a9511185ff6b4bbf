"""Safe reading of bytes, CSV and SQLite from untrusted sources."""
