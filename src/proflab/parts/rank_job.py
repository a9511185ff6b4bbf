"""A lesson's job with several ranks: submitted where Slurm takes it, else replaced by a recording that says so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proflab.display import Notice, show
from proflab.errors import CourseError
from proflab.jobs import Job, job

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile


@dataclass(frozen=True)
class RankJob:
    """What was submitted, None where Slurm refused it, and the recording that stands in until there is a result."""

    job: Job | None
    recording: Path

    def profiles(self) -> list[Profile]:
        """One profile per file: the job's own once it is done, until then the recording's. Shows which."""
        import tidyprof

        if self.job is not None:
            return [tidyprof.read(path) for path in self.job.result()]
        text = f"nothing was submitted; what follows is from `{self.recording.parent.name}/{self.recording.name}`"
        show(Notice("A recording", text, tone="open"))
        return [tidyprof.read(self.recording)]


def submit_ranks(script: str, ranks: int, recording: Path) -> RankJob:
    """Submit a script of scripts/slurm with so many ranks on a node; where that fails, show why and go on.

    recording -- a file or folder for `tidyprof.read`. Use `proflab.jobs.job` where a refusal should be an error.
    """
    try:
        return RankJob(job(script, ranks=ranks, recording=recording), recording)
    except CourseError as error:
        show(Notice("Not submitted", str(error), tone="open"))
        return RankJob(None, recording)
