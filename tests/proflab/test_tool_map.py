"""The map of the tools agrees with the course's lessons and reads in a terminal and in a notebook."""

from __future__ import annotations

from proflab.lessons import lessons as all_lessons
from proflab.parts.tool_map import NO, OPTION, SIGHTS, TOOLS, YES, tool_map


def test_every_row_is_complete_and_top_down() -> None:
    for tool in TOOLS:
        assert tool.question.endswith("?")
        assert tool.cost.endswith(".")
        assert len(tool.sees) == len(SIGHTS)
        assert set(tool.sees) <= {YES, OPTION, NO}
    lessons = [tool.lesson for tool in TOOLS if tool.lesson]
    assert lessons == sorted(lessons)
    assert set(lessons) <= set(all_lessons())


def test_each_tool_with_a_lesson_of_its_own_sees_something_else() -> None:
    sights = [tool.sees for tool in TOOLS]
    assert len(set(sights)) == len(sights)


def test_map_is_a_table_in_both_places() -> None:
    page, text = tool_map()._repr_html_(), str(tool_map())
    for tool in TOOLS:
        assert tool.name in page
        assert tool.name in text
    assert '<th scope="col"' in page
