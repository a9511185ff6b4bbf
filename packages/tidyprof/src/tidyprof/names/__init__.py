"""Names of GPU kernels: short names, categories, and a parser for C++ symbols."""
