"""Ranks: which one this process is, which device it has, how ranks meet, and what happens when one
is lost.
"""
