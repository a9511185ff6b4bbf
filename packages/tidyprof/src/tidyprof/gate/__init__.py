"""Is it slower than before, beyond doubt, and what is to blame? Runs in, verdict and reports
out.
"""
