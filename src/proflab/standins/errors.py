"""How a tool itself refuses: its own words and its own exit code."""

from __future__ import annotations

from cifar_train.errors import UserError


class ToolError(UserError):
    """What the real tool would print before it ends; `exit_code` is the real tool's too."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
