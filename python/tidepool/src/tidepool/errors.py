"""Errors of the pool. A missing block is no error: reading it gives ``None``."""


class TidepoolError(Exception):
    """The base class of all errors.

    ``key`` is the key that the error is about, or ``None``.
    """

    def __init__(self, message: str, key: str | bytes | None = None) -> None:
        super().__init__(message if key is None else f"{message} (key {key!r:.1100})")
        self.key = key


class InvalidError(TidepoolError, ValueError):
    """An argument is invalid; the message names what is allowed. No bytes were moved."""


class NoSpaceError(TidepoolError):
    """No node could make room for the block before the deadline, or it is larger than every node."""


class UnreachableError(TidepoolError, ConnectionError):
    """No catalog or node that was needed could be reached."""


class DeadlineError(TidepoolError, TimeoutError):
    """The deadline passed before the block was stored."""


class NotFoundError(TidepoolError, LookupError):
    """No node holds the block to copy or move."""


class ClosedError(TidepoolError):
    """The object was used after ``close()``."""


class ForkedError(TidepoolError):
    """The object was made before a fork and used in the child, which does not have its threads."""
