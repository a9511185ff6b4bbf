"""What is here: GPU, ROCm, profilers, PyTorch, ranks, limits, data; with one line of cure for what
is wrong.

`check_up()` asks a `Machine` a list of small questions, all at once and each with a time limit, and
returns a `Report`. What could not be found out is "unknown", never "ok". Nothing here imports
torch.
"""

from __future__ import annotations

from proflab.doctor.checkup import check_up
from proflab.doctor.findings import Finding, Issue, Status
from proflab.doctor.machine import Machine
from proflab.doctor.report import Report

__all__ = ["Finding", "Issue", "Machine", "Report", "Status", "check_up"]
