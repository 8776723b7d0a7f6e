"""A coding agent as most are, over Chat Completions: it keeps its whole history, sends it with every call, and runs what it is told."""

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI
from talk import DESCRIPTION, PARAMETERS, SYSTEM, TOOL, Talk, declared, go_on, result

TOOLS = [{"type": "function", "function": {"name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS}}]


class Session(Talk):
    """One conversation."""

    def __init__(self, name, model, **options):
        super().__init__(name, model)
        self.options = options
        self.history = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self.task}]

    def request(self):
        return {"model": self.model, "messages": self.history, "tools": TOOLS, **self.options}

    def take(self, text, calls):
        """Goes on after an answer; whether there is more to ask."""
        answer = {"role": "assistant", "content": text}
        if calls:
            answer["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in calls
            ]
        self.history.append(answer)
        for id, name, arguments in calls:
            declared(name)
            self.history.append({"role": "tool", "tool_call_id": id, "content": result(id, arguments)})
        if self.ends_with(text, calls):
            self.history.append({"role": "user", "content": go_on(text)})
        self.raw = sum(len(str(message)) for message in self.history)
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
