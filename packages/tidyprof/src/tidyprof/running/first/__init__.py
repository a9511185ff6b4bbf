"""The folder that a watched program has first on its PYTHONPATH; it holds nothing but
sitecustomize.py.
"""
