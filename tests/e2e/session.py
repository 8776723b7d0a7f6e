"""A coding agent as most are: it keeps its whole history, sends it with every call, and runs what it is told."""

import json
import random
import re

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

FINAL = "SCENARIO-COMPLETE 4711"
LARGE_EVERY = 6  # steps; the results between them are of ordinary size
ORDINARY_LINES, LARGE_LINES = 60, 400  # about 100 characters each
WORDS = "order batch ledger entry refund retry cursor tenant invoice window quota lease payload journal".split()

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "run",
            "description": "Runs one step of the task.",
            "parameters": {
                "type": "object",
                "properties": {"step": {"type": "integer"}, "part": {"type": "integer"}, "script": {"type": "string"}},
                "required": ["step"],
            },
        },
    }
]


class Session:
    """One conversation, under a key (and with it a tenant) of its own."""

    def __init__(self, name, model, **options):
        self.key = f"sk-e2e-{name}"
        self.model = model
        self.options = options
        self.rule = f"Rule of {name}: never touch anything under migrations/, not even to format it."
        self.history = [
            {"role": "system", "content": "You work in a repository through the tool run."},
            {"role": "user", "content": f"Please make the retries idempotent, step by step. {self.rule}"},
        ]
        self.actions = []  # of each answer, what the proxy says it did
        self.tokens = []  # of each answer, before and after, where the proxy counted
        self.finished = False

    def request(self):
        return {"model": self.model, "messages": self.history, "tools": TOOLS, **self.options}

    def saw(self, response):
        self.actions.append(response.headers.get("x-compactproxy-action", ""))
        counted = re.fullmatch(r"before=(\d+), after=(\d+)", response.headers.get("x-compactproxy-tokens", ""))
        self.tokens.append(tuple(map(int, counted.groups())) if counted else None)

    def did(self, action):
        """How many answers said that `action` was taken."""
        return sum(action in said.split(", ") for said in self.actions)

    def take(self, text, calls):
        """Goes on after an answer; whether there is more to ask."""
        answer = {"role": "assistant", "content": text}
        if calls:
            answer["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in calls
            ]
        self.history.append(answer)
        for id, _, arguments in calls:
            self.history.append({"role": "tool", "tool_call_id": id, "content": result(id, json.loads(arguments))})
        if not calls and FINAL not in text:
            self.history.append({"role": "user", "content": f"Yes, go on. ({text.split()[3]})"})
        self.finished = not calls and FINAL in text
        return not self.finished

    def client(self, url):
        hooks = {"response": [self.saw]}
        return OpenAI(
            base_url=url, api_key=self.key, max_retries=0, timeout=30, http_client=DefaultHttpxClient(event_hooks=hooks)
        )

    def async_client(self, url):
        async def saw(response):
            self.saw(response)

        http_client = DefaultAsyncHttpxClient(event_hooks={"response": [saw]})
        return AsyncOpenAI(base_url=url, api_key=self.key, max_retries=0, timeout=30, http_client=http_client)


def result(id, arguments):
    """What the tool prints: always the same for the same step."""
    numbers = random.Random(id)
    lines = LARGE_LINES if arguments["step"] % LARGE_EVERY == 2 else ORDINARY_LINES
    log = (
        f"09:{n // 60:02}:{n % 60:02} DEBUG {numbers.choice(WORDS)}: {numbers.choice(WORDS)} of {numbers.choice(WORDS)} "
        f"id={numbers.randrange(90_000)} rows={numbers.randrange(900)} {numbers.choice(WORDS)} attempt={numbers.randrange(4)}"
        for n in range(lines)
    )
    return f"output of {id}\n" + "\n".join(log) + f"\nstep {arguments['step']}: ok\n"


def ask(client, session):
    """One answer in one piece."""
    message = client.chat.completions.create(**session.request()).choices[0].message
    return message.content, called(message)


def ask_streamed(client, session):
    """One answer from its deltas, put together by hand."""
    stream = client.chat.completions.create(**session.request(), stream=True, stream_options={"include_usage": True})
    text, calls, finish, usage = "", {}, None, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            text += choice.delta.content or ""
            for delta in choice.delta.tool_calls or []:
                call = calls.setdefault(delta.index, ["", "", ""])
                call[0] += delta.id or ""
                call[1] += delta.function.name or ""
                call[2] += delta.function.arguments or ""
    if finish is None or usage is None:
        raise AssertionError("the stream ended without a finish reason or its usage")
    return text, list(calls.values())


async def ask_async(client, session):
    message = (await client.chat.completions.create(**session.request())).choices[0].message
    return message.content, called(message)


async def ask_async_streamed(client, session):
    """One answer by the SDK's own accumulator."""
    async with client.chat.completions.stream(**session.request()) as stream:
        message = (await stream.get_final_completion()).choices[0].message
    return message.content, called(message)


def called(message):
    return [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []]


def play(session, url, how):
    """The whole session; the first error ends it."""
    with session.client(url) as client:
        while session.take(*how(client, session)):
            pass


async def play_async(session, url, how):
    async with session.async_client(url) as client:
        while session.take(*await how(client, session)):
            pass
