"""Data, tables and charts that lessons and exercises share, but that aren't public names of
proflab.

Figures and checks for a single lesson are in the lesson's folder. Imports from this package also
search the lesson folders. For example, `proflab.parts.work_map` is
lessons/01_system_view/work_map.py.
"""

from proflab.lessons import lessons_folder

__path__ += [str(folder) for folder in sorted(lessons_folder().glob("[0-9]*"))]
