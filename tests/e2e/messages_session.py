"""A coding agent over Messages: blocks, signed thinking, a cache mark that moves to the end with every call."""

from anthropic import Anthropic, BadRequestError, DefaultHttpxClient
from talk import DESCRIPTION, PARAMETERS, SYSTEM, TOOL, Talk, declared, go_on, result

TOOLS = [{"name": TOOL, "description": DESCRIPTION, "input_schema": PARAMETERS}]
MAX_TOKENS = 2_048
MARK = {"type": "ephemeral"}


class Session(Talk):
    """One conversation; `thinking`: tokens for it, or none."""

    def __init__(self, name, model, thinking=None):
        super().__init__(name, model)
        self.thinking = {"thinking": {"type": "enabled", "budget_tokens": thinking}} if thinking else {}
        self.history = [{"role": "user", "content": [{"type": "text", "text": self.task}]}]
        self.thoughts = 0
        self.counted = []  # what `count_tokens` said before each call
        self.uncounted = 0  # how often it said that this is too long

    def common(self):
        """What a call and the counting of its tokens share."""
        *earlier, last = self.history
        *blocks, end = last["content"]
        marked = {"role": last["role"], "content": [*blocks, end | {"cache_control": MARK}]}
        system = [{"type": "text", "text": SYSTEM, "cache_control": MARK}]
        return {"model": self.model, "system": system, "tools": TOOLS, "messages": [*earlier, marked], **self.thinking}

    def request(self):
        return self.common() | {"max_tokens": MAX_TOKENS}

    def take(self, message):
        """Goes on after an answer; whether there is more to ask."""
        if message.stop_reason not in ("end_turn", "tool_use"):
            raise AssertionError(f"the answer stopped for {message.stop_reason}")
        self.thoughts += sum(block.type == "thinking" for block in message.content)
        content = [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in message.content]
        self.history.append({"role": "assistant", "content": content})
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [block for block in message.content if block.type == "tool_use"]
        for call in calls:
            declared(call.name)
        answer = [
            {"type": "tool_result", "tool_use_id": call.id, "content": result(call.id, call.input)} for call in calls
        ]
        if self.ends_with(text, calls):
            answer.append({"type": "text", "text": go_on(text)})
        if answer:
            self.history.append({"role": "user", "content": answer})
        self.raw = sum(len(str(message)) for message in self.history)
        return not self.finished

    def client(self, root):
        http_client = DefaultHttpxClient(event_hooks={"response": [self.saw]})
        return Anthropic(base_url=root, auth_token=self.key, max_retries=0, timeout=30, http_client=http_client)


def ask(client, session):
    """One answer in one piece."""
    return client.messages.create(**session.request())


def ask_counted(client, session):
    """The same, after its tokens were counted, as careful agents do. To count is no reason to compact: what only the
    call itself will compact may be too long for the provider's counter, too."""
    try:
        session.counted.append(client.messages.count_tokens(**session.common()).input_tokens)
    except BadRequestError as error:
        if "prompt is too long" not in str(error):
            raise
        session.uncounted += 1
    return ask(client, session)


def ask_streamed(client, session):
    """One answer by the SDK's own accumulator."""
    with client.messages.stream(**session.request()) as stream:
        return stream.get_final_message()


def play(session, root, how):
    """The whole session; the first error ends it."""
    with session.client(root) as client:
        while session.take(how(client, session)):
            pass
