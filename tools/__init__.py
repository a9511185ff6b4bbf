"""Tools that build and check the course: notebooks from lessons, lint, and every command that the
course shows.
"""
