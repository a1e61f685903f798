"""Command lines in the style that Mooncake's programs take: ``--name=value``, ``--name value``, one dash or two."""

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_HELP = ("help", "h")
_VERSION = "version"


class FlagError(ValueError):
    """An invalid flag; the message names it and what is allowed."""


@dataclass
class Command:
    """A program: its name, what it does, and its flags, each with its default and what it means."""

    name: str
    purpose: str
    flags: Mapping[str, tuple[str, str]]
    #: Flags that are taken and have no effect.
    accepted: Sequence[str] = ()

    def parse(self, arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """The values of the flags, and the names of unknown flags."""
        values, unknown = {name: default for name, (default, _) in self.flags.items()}, []
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            if not word.startswith("-"):
                raise FlagError(f"{word!r} is not a flag: allowed are flags like --{next(iter(self.flags))}=value")
            name, equals, value = word.lstrip("-").partition("=")
            if not equals and rest and _is_value(rest[0]):
                value = rest.pop(0)
            elif not equals:
                value = "true"
            if name in values:
                values[name] = value
            elif name not in self.accepted:
                unknown.append(name)
        return values, unknown

    def answer(self, arguments: Sequence[str]) -> str | None:
        """What to print instead of starting: the help or the version, if that is what is asked for."""
        names = [word.lstrip("-") for word in arguments if word.startswith("-")]
        if _VERSION in names:
            return f"{self.name} of tidepool-mooncake {importlib.metadata.version('tidepool-mooncake')}"
        return self.usage() if any(name in _HELP for name in names) else None

    def usage(self) -> str:
        width = max(len(f"{name}={default}") for name, (default, _) in self.flags.items()) + 2
        lines = [f"{self.name}: {self.purpose}", "", "Flags and their defaults:"]
        lines += [f"  --{name + '=' + default:<{width}} {meaning}" for name, (default, meaning) in self.flags.items()]
        lines += ["  --help, --version"]
        if self.accepted:
            lines += ["", f"Accepted and not needed: {', '.join(f'--{name}' for name in self.accepted)}"]
        return "\n".join(lines)


def _is_value(word: str) -> bool:
    """Whether a word is no flag. A number may be below zero, and be refused for it under the name of its flag."""
    return not word.startswith("-") or word[1:2].isdigit()


def number(values: Mapping[str, str], name: str, low: int, high: int) -> int:
    try:
        value = int(values[name])
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise FlagError(f"--{name} is {values[name]!r}: allowed are numbers from {low} to {high}")
    return value
