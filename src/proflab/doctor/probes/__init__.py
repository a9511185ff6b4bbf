"""The questions, one module per subject; each probe is a function of a `Machine`."""
