"""The openai SDK on Chat Completions, for the matrix."""

import openai
from matrix_had import DESCRIPTION, Had, PARAMETERS, arguments
from matrix_turns import TOOL

TOOLS = [{"type": "function", "function": {"name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS}}]


class Chat:
    name = "chat"
    array = "messages"
    openings = 1  # events before the first delta
    errors = openai.APIError

    def client(self, root, transport, key):
        http_client = openai.DefaultHttpxClient(transport=transport)
        return openai.OpenAI(base_url=f"{root}/v1", api_key=key, max_retries=0, timeout=30, http_client=http_client)

    def async_client(self, root, key):
        return openai.AsyncOpenAI(base_url=f"{root}/v1", api_key=key, max_retries=0, timeout=30)

    def user(self, text):
        return [{"role": "user", "content": text}]

    def called(self, id):
        call = {"id": id, "type": "function", "function": {"name": TOOL, "arguments": "{}"}}
        return [{"role": "assistant", "content": None, "tool_calls": [call]}]

    def said(self, text):
        return [{"role": "assistant", "content": text}]

    def answered(self, results, text):
        """Results of calls, and what the user says then."""
        return [{"role": "tool", "tool_call_id": id, "content": result} for id, result in results] + self.user(text)

    def request(self, talk):
        return {"model": talk.model, "messages": talk.items, "tools": TOOLS}

    def create(self, client, request):
        return client.chat.completions.create(**request)

    def stream(self, client, request):
        return client.chat.completions.stream(**request, stream_options={"include_usage": True})

    def final(self, stream):
        return stream.get_final_completion()

    def delta(self, event):
        return event.delta if event.type == "content.delta" else ""

    def read(self, completion):
        (choice,) = completion.choices
        message, usage = choice.message, completion.usage
        calls = [(call.id, call.function.name, arguments(call.function.arguments)) for call in message.tool_calls or []]
        assert choice.finish_reason == ("tool_calls" if calls else "stop"), choice.finish_reason
        assert message.role == "assistant" and completion.object == "chat.completion"
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        thoughts = (message.model_extra or {}).get("reasoning_content") or ""
        counted = (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, 0, usage.completion_tokens)
        return Had(completion.id, message.content or "", thoughts, calls, counted, [message])

    def as_sent(self, had):
        """As agents keep an answer that do not send the SDK's own objects."""
        (message,) = had.items
        kept = message.model_dump(exclude_none=True, exclude={"parsed": True})
        for call in kept.get("tool_calls", []):
            call["function"].pop("parsed_arguments", None)
        return [kept]

    def well_formed(self, events, had):
        chunks = [event.chunk for event in events if event.type == "chunk"]
        assert {chunk.id for chunk in chunks} == {had.id}
        assert len({(chunk.created, chunk.model) for chunk in chunks}) == 1
        assert chunks[-1].choices == [] and chunks[-1].usage, "the usage comes last"
        choices = [choice for chunk in chunks for choice in chunk.choices]
        assert len(choices) == len(chunks) - 1 and {choice.index for choice in choices} == {0}
        assert [choice.delta.role for choice in choices if choice.delta.role] == ["assistant"]
        reasons = [choice.finish_reason for choice in choices]
        assert all(reason is None for reason in reasons[:-1]) and reasons[-1], reasons
        begun = [call for choice in choices for call in choice.delta.tool_calls or [] if call.id or call.function.name]
        assert [(call.index, call.id) for call in begun] == [(n, id) for n, (id, _, _) in enumerate(had.calls)], begun

    def names(self, items):
        """The names of all calls."""
        return [call["function"]["name"] for item in items for call in item.get("tool_calls") or []]

    def broken(self, said):
        return 500, {"error": {"message": said, "type": "server_error", "param": None, "code": "x"}}

    def limited(self, said):
        return 429, {"error": {"message": said, "type": "requests", "param": None, "code": "rate_limit_exceeded"}}

    def too_long(self):
        said = (
            "This model's maximum context length is 6000 tokens. However, your messages resulted in 12000 tokens. "
            "Please reduce the length of the messages."
        )
        return 400, too_long(said, "messages")


def too_long(said, param):
    code = "context_length_exceeded"
    return {"error": {"message": said, "type": "invalid_request_error", "param": param, "code": code}}
