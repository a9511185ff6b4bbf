"""The gate: compare the runs of two versions, decide whether the new version is slower, and report
what changed.
"""
