"""The errors that end the program with one line and no traceback."""


class UserError(Exception):
    """A one-line message on what the user can put right; exit code 2."""


class LostRankError(UserError):
    """Another rank is gone; exit code 1, since this one did nothing wrong."""
