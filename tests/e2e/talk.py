"""What all conversations of the suite have in common, whatever API they speak."""

import json
import random
import re

FINAL = "SCENARIO-COMPLETE 4711"
LARGE_EVERY = 6  # steps; the results between them are of ordinary size
ORDINARY_LINES, LARGE_LINES = 60, 400  # about 100 characters each
WORDS = "order batch ledger entry refund retry cursor tenant invoice window quota lease payload journal".split()

SYSTEM = "You work in a repository through the tool run."
TOOL = "run"
DESCRIPTION = "Runs one step of the task."
PARAMETERS = {
    "type": "object",
    "properties": {"step": {"type": "integer"}, "part": {"type": "integer"}, "script": {"type": "string"}},
    "required": ["step"],
}


class Talk:
    """One conversation, under a key (and with it a tenant) of its own."""

    def __init__(self, name, model):
        self.key = f"sk-e2e-{name}"
        self.model = model
        self.rule = f"Rule of {name}: never touch anything under migrations/, not even to format it."
        self.task = f"Please make the retries idempotent, step by step. {self.rule}"
        self.raw = len(self.task)  # characters of the whole history
        self.actions = []  # of each answer, what the proxy says it did
        self.tokens = []  # of each answer, before and after, where the proxy counted
        self.finished = False

    def saw(self, response):
        """An httpx hook: the proxy's account of an answer."""
        self.actions.append(response.headers.get("x-compactproxy-action", ""))
        counted = re.fullmatch(r"before=(\d+), after=(\d+)", response.headers.get("x-compactproxy-tokens", ""))
        self.tokens.append(tuple(map(int, counted.groups())) if counted else None)

    def did(self, action):
        """How many answers said that `action` was taken."""
        return sum(action in said.split(", ") for said in self.actions)

    def ends_with(self, text, calls):
        """Notes an answer; whether the user has to say something to it."""
        self.finished = not calls and FINAL in text
        return not calls and not self.finished


def go_on(text):
    """What the user says to a question."""
    return f"Yes, go on. ({text.split()[3]})"


def result(id, arguments):
    """What the tool prints: always the same for the same step."""
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    numbers = random.Random(id)
    lines = LARGE_LINES if arguments["step"] % LARGE_EVERY == 2 else ORDINARY_LINES
    log = (
        f"09:{n // 60:02}:{n % 60:02} DEBUG {numbers.choice(WORDS)}: {numbers.choice(WORDS)} of {numbers.choice(WORDS)} "
        f"id={numbers.randrange(90_000)} rows={numbers.randrange(900)} {numbers.choice(WORDS)} attempt={numbers.randrange(4)}"
        for n in range(lines)
    )
    return f"output of {id}\n" + "\n".join(log) + f"\nstep {arguments['step']}: ok\n"
