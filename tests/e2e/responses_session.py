"""A coding agent over Responses: it sends its whole history with every call, or the end of a chain that the
provider keeps."""

from openai import DefaultHttpxClient, OpenAI
from talk import DESCRIPTION, PARAMETERS, SYSTEM, TOOL, Talk, declared, go_on, result

TOOLS = [{"type": "function", "name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS, "strict": False}]


class Session(Talk):
    """One conversation. `chained`: only what is new is sent, with the id of the response before it."""

    def __init__(self, name, model, chained=False):
        super().__init__(name, model)
        self.chained = chained
        self.history = [{"role": "user", "content": self.task}]
        self.fresh = self.history[:]
        self.previous = None

    def request(self):
        body = {"model": self.model, "instructions": SYSTEM, "tools": TOOLS, "reasoning": {"effort": "medium"}}
        if not self.chained:
            return body | {"input": self.history, "store": False, "include": ["reasoning.encrypted_content"]}
        return body | {"input": self.fresh} | ({"previous_response_id": self.previous} if self.previous else {})

    def take(self, response):
        """Goes on after an answer; whether there is more to ask."""
        if response.status != "completed" or response.usage is None:
            raise AssertionError(f"the answer is {response.status}, its usage {response.usage}")
        self.previous = response.id
        self.history += [as_sent(item) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        for call in calls:
            declared(call.name)
        self.fresh = [
            {"type": "function_call_output", "call_id": call.call_id, "output": result(call.call_id, call.arguments)}
            for call in calls
        ]
        if self.ends_with(response.output_text, calls):
            self.fresh.append({"role": "user", "content": go_on(response.output_text)})
        self.history += self.fresh
        self.raw = sum(len(str(item)) for item in self.history)
        return not self.finished

    def client(self, url):
        http_client = DefaultHttpxClient(event_hooks={"response": [self.saw]})
        return OpenAI(base_url=url, api_key=self.key, max_retries=0, timeout=30, http_client=http_client)


def as_sent(item):
    """An output item as an input item: without what only the SDK knows."""
    item = item.model_dump(exclude_none=True)
    item.pop("parsed_arguments", None)
    for part in item.get("content") or []:
        part.pop("parsed", None)
    return item


def ask(client, session):
    """One answer in one piece."""
    return client.responses.create(**session.request())


def ask_streamed(client, session):
    """One answer by the SDK's own accumulator; every event is read, and they are numbered without a gap."""
    with client.responses.stream(**session.request()) as stream:
        numbers = [event.sequence_number for event in stream if getattr(event, "sequence_number", None) is not None]
        if numbers != list(range(len(numbers))):
            raise AssertionError(f"the events are numbered {numbers}")
        return stream.get_final_response()


def play(session, url, how):
    """The whole session; the first error ends it."""
    with session.client(url) as client:
        while session.take(how(client, session)):
            pass
