"""The gate compares the runs of two versions, decides whether the new version is slower, and
reports what changed.
"""
