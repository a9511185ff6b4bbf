"""What a GPU kernel is called: short names, categories, C++ symbols taken apart."""
