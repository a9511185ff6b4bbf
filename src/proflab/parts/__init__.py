"""Data, tables and charts for lessons and their exercises that aren't public names of proflab.

Figures and checks of a single lesson are in the lesson's folder, which is also searched. For
example, `proflab.parts.work_map` is lessons/01_system_view/work_map.py.
"""

from proflab.lessons import lessons_folder

__path__ += [str(folder) for folder in sorted(lessons_folder().glob("[0-9]*"))]
