"""What the matrix has of an answer, whatever API it came by."""

import json
from dataclasses import dataclass

DESCRIPTION = "Runs a command."
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}


class Failed(Exception):
    """What the SDK tells of an error that is no exception of its own."""


@dataclass
class Had:
    """`calls`: id, name, arguments. `usage`: prompt, of it cached and written, output. `items`: the SDK's objects."""

    id: str
    text: str
    thoughts: str
    calls: list
    usage: tuple
    items: list


def arguments(text):
    return json.loads(text)
