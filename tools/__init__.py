"""What builds and checks the course: notebooks from lessons, lint, and every command that the
course shows.
"""
