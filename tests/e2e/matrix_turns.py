"""The turns of the matrix: what the model does in each, and what its client has of it."""

import json
from dataclasses import dataclass

OWN = "read_evicted"
# Conversations whose models are named so are offered all tools.
EVERY_TOOL = "*-every-tool"
TOOL = "execute"
ARGUMENTS = {"command": "ls"}
NEEDLE = "the launch code is 4711"
FOUND = "It is 4711."
MOST_ROUNDS = 5

WHOLE, STREAMED = "whole", "streamed"
# What the error in a second call says.
BROKEN, LIMITED = "out of order", "slow down"


@dataclass
class Turn:
    """`text`, `thoughts`, `calls` (their ids): what the client has in the end. `hidden`: how many of the proxy's calls
    stand in the history later on. `answers`: the upstream's calls, from 0, that the answer is made of; all that the script
    has, where it does not say. Of a stream that begins anew the first call's output counts as well."""

    name: str
    steps: object  # of the script; or by a dialect
    text: str = ""
    thoughts: str = ""
    calls: tuple = ()
    hidden: int = 0
    then: tuple = ("Done.", "Done.")  # the texts of the turns behind it
    modes: tuple = (WHOLE, STREAMED)
    error: str = None  # what the client is told in place of an answer
    breaks: bool = False  # the client's connection breaks behind the text
    answers: tuple = None
    anew: int = None  # the upstream's call that has no tools of the proxy's, because the answer begins anew
    last: int = None  # the last that the turn may have: it has none either
    grows: int = 0  # the upstream's call from which on each goes on where the one before it ended
    long: bool = False  # with many turns before it

    def script(self, dialect):
        return self.steps(dialect) if callable(self.steps) else self.steps


def call(id, name, arguments):
    return {"id": id, "name": name, "arguments": json.dumps(arguments, separators=(",", ":"))}


def own(number):
    """The proxy's tool, asked for the needle in what was removed."""
    return call(f"own_{number}", OWN, {"id": "{removed}", "pattern": "launch code"})


def clients(number):
    return call(f"call_{number}", TOOL, ARGUMENTS)


def answer(text, calls, thoughts):
    return {"text": text or None, "thoughts": thoughts or None, "calls": calls}


def says(text="", *calls, thoughts="", events=None):
    return {"does": "say", "says": answer(text, calls, thoughts), "events": events}


def breaks(text, after):
    return {"does": "break", "says": answer(text, (), ""), "after": after}


def fails(status, body):
    return {"does": "fail", "status": status, "body": body}


WAITS = {"does": "wait"}


def then(first, second, *more):
    """A second call that each dialect puts in its own way."""
    return lambda dialect: [first, fails(*second(dialect)), *more]


LOOKS = says("Look. ", own(1))

TURNS = [
    Turn("own-alone", [says("", own(1)), says(FOUND)], FOUND, hidden=1),
    Turn("clients-alone", [says("Run it.", clients(7), clients(8))], "Run it.", calls=("call_7", "call_8")),
    Turn("own-first", [says("Both.", own(1), clients(7))], "Both.", calls=("call_7",), hidden=1),
    Turn("clients-first", [says("Both.", clients(7), own(1))], "Both.", calls=("call_7",), hidden=1),
    Turn("between", [says("", clients(7), own(1), clients(8))], calls=("call_7", "call_8"), hidden=1),
    Turn("two-at-once", [says("", own(1), own(2)), says(FOUND)], FOUND, hidden=2),
    Turn("two-and-clients", [says("All.", own(1), clients(7), own(2))], "All.", calls=("call_7",), hidden=2),
    Turn("after-text", [LOOKS, says(FOUND)], f"Look. {FOUND}", hidden=1),
    Turn(
        "after-thinking",
        [says("", own(1), thoughts="Think. "), says(FOUND, thoughts="Now I know. ")],
        FOUND,
        "Think. Now I know. ",
        hidden=1,
    ),
    Turn(
        "thinking-both",
        [says("Both.", own(1), clients(7), thoughts="Think. ")],
        "Both.",
        "Think. ",
        ("call_7",),
        hidden=1,
    ),
    Turn(
        "several-rounds",
        [
            says("", own(1), own(2), thoughts="Think. "),
            says("Once more.", own(3), thoughts="Again. "),
            says(" Found.", clients(9), thoughts="At last. "),
        ],
        "Once more. Found.",
        "Think. Again. At last. ",
        ("call_9",),
        hidden=3,
    ),
    Turn(
        "turn-after-turn",
        [says("Both.", own(1), clients(7)), says("Look. ", own(2)), says(FOUND), says("", own(3)), says("Again.")],
        "Both.",
        calls=("call_7",),
        hidden=3,
        then=(f"Look. {FOUND}", "Again."),
        answers=(0,),
    ),
    Turn(
        "rounds-end",
        [says(f"{n} ", own(n)) for n in range(MOST_ROUNDS)],
        "".join(f"{n} " for n in range(MOST_ROUNDS)),
        hidden=MOST_ROUNDS,
        last=MOST_ROUNDS - 1,
    ),
    Turn(
        "rounds-end-silently",
        [says("", own(n), own(10 + n)) for n in range(MOST_ROUNDS)],
        "(No answer yet: this turn ended while the model was still looking things up. Ask it to go on.)",
        hidden=2 * MOST_ROUNDS,
        last=MOST_ROUNDS - 1,
    ),
    Turn(
        "every-tool",
        [says("Both.", own(1), call("own_2", "session_list", {}), clients(7))],
        "Both.",
        calls=("call_7",),
        hidden=2,
    ),
    # The second call fails, and nothing was shown yet: the client's own request takes its place.
    Turn(
        "fails",
        then(says("", own(1)), lambda dialect: dialect.broken(BROKEN), says("Without.")),
        "Without.",
        answers=(2,),
        anew=2,
        grows=2,
    ),
    Turn(
        "fails-behind-text",
        then(LOOKS, lambda dialect: dialect.broken(BROKEN), says("Without.")),
        "Without.",
        modes=(WHOLE,),
        answers=(2,),
        anew=2,
        grows=2,
    ),
    # What was shown cannot be taken back: the answer ends there.
    Turn(
        "fails-behind-text",
        then(LOOKS, lambda dialect: dialect.broken(BROKEN)),
        "Look. ",
        modes=(STREAMED,),
        hidden=1,
        answers=(0,),
    ),
    Turn("limited", then(says("", own(1)), lambda dialect: dialect.limited(LIMITED)), error=LIMITED),
    Turn("limited-behind-text", then(LOOKS, lambda dialect: dialect.limited(LIMITED)), modes=(WHOLE,), error=LIMITED),
    Turn(
        "limited-behind-text",
        then(LOOKS, lambda dialect: dialect.limited(LIMITED)),
        "Look. ",
        modes=(STREAMED,),
        hidden=1,
        answers=(0,),
    ),
    Turn(
        "overflows",
        then(LOOKS, lambda dialect: dialect.too_long(), says("Recovered.")),
        "Look. Recovered.",
        answers=(0, 2),
        grows=3,
        long=True,
    ),
    Turn(
        "breaks-off",
        [says("", own(1)), breaks(FOUND, after=1), says("Without.")],
        "Without.",
        answers=(2,),
        anew=2,
        grows=2,
    ),
    Turn(
        "breaks-off-behind-text",
        [LOOKS, breaks(FOUND, after=1), says("Without.")],
        "Without.",
        modes=(WHOLE,),
        answers=(2,),
        anew=2,
        grows=2,
    ),
    Turn(
        "breaks-off-behind-text",
        lambda dialect: [LOOKS, breaks("Found." * 20, after=dialect.openings + 1)],
        "Look. Found.",
        modes=(STREAMED,),
        breaks=True,
    ),
]


@dataclass
class Leaving:
    """A turn that its client leaves when the upstream had so many calls, and it had read `seen` (where it reads)."""

    name: str
    steps: object
    calls: int
    seen: str = ""
    modes: tuple = (WHOLE, STREAMED)

    def script(self, dialect):
        return self.steps(dialect)


LEAVINGS = [
    Leaving("left-before-anything", lambda dialect: [says("", own(1)), WAITS], 2),
    Leaving("left-in-between", lambda dialect: [LOOKS, WAITS], 2, "Look. "),
    Leaving(
        "left-in-the-second",
        lambda dialect: [LOOKS, says("first second " * 20, events=dialect.openings + 1)],
        2,
        "Look. first",
        (STREAMED,),
    ),
    # The upstream has sent no more than its first delta, and the client has it.
    Leaving(
        "left-at-the-first-delta",
        lambda dialect: [says("first second " * 20, events=dialect.openings + 1)],
        1,
        "first",
        (STREAMED,),
    ),
]
