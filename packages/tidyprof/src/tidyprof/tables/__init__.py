"""The contract between readers and analyses, with functions that build the contract's tables."""
