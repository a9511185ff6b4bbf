"""One command for the day on which a GPU is there: try everything on it, and make one archive to
send. See `parts.py`.
"""
