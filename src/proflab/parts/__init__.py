"""Data, tables and charts that lessons and their exercises import, but that are not part of
proflab's public names; some serve one lesson, some several.

They are here and not beside their lesson, since a notebook can import nothing from the lesson's
folder: the files there are data, or scripts to copy and run.
"""
