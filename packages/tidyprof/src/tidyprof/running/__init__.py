"""A program with hooks in front of it: started by `launch`, watched by `inside`, told about by
`report`.
"""
