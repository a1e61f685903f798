"""Command lines in the style that Mooncake's programs take: ``--name=value``, ``--name value``, one dash or two."""

from collections.abc import Mapping, Sequence


class FlagError(ValueError):
    """A flag that cannot be; the message names it and says what is allowed."""


def parse(
    arguments: Sequence[str], known: Mapping[str, str], accepted: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """The values of ``known`` flags (with their defaults), and the names of those neither known nor ``accepted``."""
    values, unknown = dict(known), []
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        if not equals and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        elif not equals:
            value = "true"
        if name in values:
            values[name] = value
        elif name not in accepted:
            unknown.append(name)
    return values, unknown


def number(values: Mapping[str, str], name: str, low: int, high: int) -> int:
    try:
        value = int(values[name])
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise FlagError(f"--{name} is {values[name]!r}: allowed are numbers from {low} to {high}")
    return value
