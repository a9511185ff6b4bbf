"""The error for everything that a user can put right."""


class UserError(Exception):
    """A one-line message for the user; the program ends with exit code 2, without traceback."""
