"""Names of GPU kernels: short names, categories, and parsed C++ symbols."""
