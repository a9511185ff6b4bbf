"""Data, tables and charts that lessons and their exercises import, but that are not part of
proflab's public names.

Figures and checks of one lesson are in its folder, which is searched too: `proflab.parts.work_map`
is lessons/01_system_view/work_map.py.
"""

from proflab.lessons import lessons_folder

__path__ += [str(folder) for folder in sorted(lessons_folder().glob("[0-9]*"))]
