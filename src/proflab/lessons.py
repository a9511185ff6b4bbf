"""The lessons: the question each answers, the time it takes and the tools it drives."""

from __future__ import annotations

from dataclasses import dataclass

from proflab.display import near
from proflab.errors import CourseError


@dataclass(frozen=True)
class Lesson:
    """One lesson. `minutes` is the time in a room, `tools` are commands that it would use on a GPU node."""

    number: str
    question: str
    minutes: int
    tools: tuple[str, ...] = ()


LESSONS = {
    lesson.number: lesson
    for lesson in (
        Lesson("00", "Can I trust my setup and my clock?", 50, ("amd-smi",)),
        Lesson("01", "Is the GPU even the problem?", 50, ("amd-smi", "omnistat-usermode", "omnistat-query")),
        Lesson("02", "Where does a step go?", 75),
        Lesson(
            "03",
            "What is the CPU doing while the GPU waits?",
            60,
            ("rocprof-sys-avail", "rocprof-sys-sample", "rocprof-sys-run"),
        ),
        Lesson("04", "Which kernels, how often, how small?", 60, ("rocprofv3", "rocpd")),
        Lesson("05", "Is this kernel near its ceiling?", 60, ("rocprof-compute",)),
        Lesson("06", "Can I ask my own question?", 70, ("runTracer.sh", "rpd2tracing", "rocprofv3", "rocpd")),
        Lesson("07", "What changes with many GPUs?", 60, ("rocprofv3", "srun")),
        Lesson("08", "Blind clinic: what is wrong with these runs?", 75, ("rocprofv3", "rocprof-compute")),
        Lesson("09", "Which kernel killed my job?", 40),
    )
}
"""All lessons by number."""


def lesson(number: str) -> Lesson:
    """The lesson with this two-digit number; raises CourseError for an unknown one."""
    try:
        return LESSONS[number]
    except (KeyError, TypeError):
        raise CourseError(f"there is no lesson {number!r}: {near(str(number), LESSONS)}") from None
