"""The questions, in one module for each subject; each probe is a function of a `Machine`."""
