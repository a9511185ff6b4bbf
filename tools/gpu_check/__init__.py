"""One command for the day a GPU is there: try everything on it, and leave one archive to send. See
`parts.py`.
"""
