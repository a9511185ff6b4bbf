"""Programs that run with hooks. `launch` starts a program, `inside` contains the hooks, and
`report` describes the results.
"""
