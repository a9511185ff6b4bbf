"""Traces and profiles of rocprof-sys."""
