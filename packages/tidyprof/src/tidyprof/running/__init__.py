"""Run a program with hooks. The module `launch` starts the program, the package `inside` contains
the hooks, and the module `report` describes the results.
"""
