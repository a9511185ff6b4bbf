"""What lessons and their exercises import, and the public face of proflab does not offer: data,
tables and charts, some of one lesson, some of several.

They are here and not beside their lesson since a notebook can import nothing from the lesson's
folder: what lies there is data, or a script to copy and run.
"""
