"""What all conversations of the suite have in common, whatever API they speak."""

import hashlib
import json
import random
import re

FINAL = "SCENARIO-COMPLETE 4711"
LARGE_EVERY, LARGE_FIRST = 6, 2  # steps; the results between them are of ordinary size
SAID_LATER = 4  # steps, at most: by then the model has said a large result's code word
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
        self.code_words = {}  # by the step's tag: what the model said that it is

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
        self.heard(text)
        self.finished = not calls and FINAL in text
        return not calls and not self.finished


    def heard(self, text):
        self.code_words.update(re.findall(r"code word of (st\d{3}c000): (\w+)", text or ""))

    def missed(self, steps):
        """The code words that the model did not say in so many steps, or not as the tool had printed them."""
        large = [f"st{step:03}c000" for step in range(LARGE_FIRST, steps - SAID_LATER, LARGE_EVERY)]
        return {tag: self.code_words.get(tag) for tag in large if self.code_words.get(tag) != code_word(tag)}


def declared(name):
    """A client never sees a tool that it did not declare."""
    if name != TOOL:
        raise AssertionError(f"the model calls {name}")


def code_word(tag):
    """What only the large result of this step says, in its middle."""
    return hashlib.md5(f"{int(tag[2:5])}\n".encode()).hexdigest()[:8]  # as a shell makes it


def go_on(text):
    """What the user says to a question."""
    return f"Yes, go on. ({text.split()[3]})"


def result(id, arguments):
    """What the tool prints: always the same for the same step."""
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    numbers = random.Random(id)
    large = arguments["step"] % LARGE_EVERY == LARGE_FIRST
    log = [
        f"09:{n // 60:02}:{n % 60:02} DEBUG {numbers.choice(WORDS)}: {numbers.choice(WORDS)} of {numbers.choice(WORDS)} "
        f"id={numbers.randrange(90_000)} rows={numbers.randrange(900)} {numbers.choice(WORDS)} attempt={numbers.randrange(4)}"
        for n in range(LARGE_LINES if large else ORDINARY_LINES)
    ]
    if large:
        log.insert(LARGE_LINES // 2, f"code word of {id}: {code_word(id)}")
    return f"output of {id}\n" + "\n".join(log) + f"\nstep {arguments['step']}: ok\n"
