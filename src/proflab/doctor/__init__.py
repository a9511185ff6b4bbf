"""What is installed here: GPU, ROCm, profilers, PyTorch, ranks, limits, data; with a line of cure
for each fault.

`check_up()` asks a `Machine` many small questions, all at once and each with a time limit, and
returns a `Report`. A question without an answer is "unknown", never "ok". Nothing here imports
torch.
"""

from __future__ import annotations

from proflab.doctor.checkup import check_up
from proflab.doctor.findings import Finding, Issue, Status
from proflab.doctor.machine import Machine
from proflab.doctor.report import Report

__all__ = ["Finding", "Issue", "Machine", "Report", "Status", "check_up"]
