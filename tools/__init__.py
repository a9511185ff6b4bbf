"""Tools that build and check the course.

They build notebooks from lessons, lint them, and check every command that the course shows.
"""
