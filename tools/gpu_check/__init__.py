"""One command that tests everything on a machine with a GPU and makes one archive to send.

See `parts.py`.
"""
