"""What can go wrong. A block that is not there is not among it: reading one gives ``None``."""


class TidepoolError(Exception):
    """The base of all of them.

    ``key`` is the key that the failure is about, or ``None`` when it is not about one.
    """

    def __init__(self, message: str, key: str | bytes | None = None) -> None:
        super().__init__(message if key is None else f"{message} (key {key!r:.1100})")
        self.key = key


class InvalidError(TidepoolError, ValueError):
    """An argument cannot be: the message says what is allowed. Nothing was moved."""


class NoSpaceError(TidepoolError):
    """No node could make room for the block before the deadline, or it is larger than every node."""


class UnreachableError(TidepoolError, ConnectionError):
    """No catalog or node that was needed could be reached."""


class DeadlineError(TidepoolError, TimeoutError):
    """The deadline passed before the block was stored."""


class NotFoundError(TidepoolError, LookupError):
    """No node holds the block that was to be copied or moved."""


class ClosedError(TidepoolError):
    """The object was used after ``close()``."""


class ForkedError(TidepoolError):
    """The object was made before a fork and is used in the child: its threads are not there."""
