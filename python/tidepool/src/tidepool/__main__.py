"""The ``tidepool`` command: ``python -m tidepool`` is the same."""

import signal
import sys

from tidepool import _native


def main() -> int:
    # The command handles its own signals; Python's handler would only note an interrupt and never look at it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.main()


if __name__ == "__main__":
    sys.exit(main())
