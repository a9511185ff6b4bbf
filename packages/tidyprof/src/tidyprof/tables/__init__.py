"""The contract between readers and analyses, and functions that build its tables."""
