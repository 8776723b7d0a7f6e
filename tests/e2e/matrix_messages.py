"""The anthropic SDK on Messages, for the matrix."""

import anthropic
from matrix_had import DESCRIPTION, Had, PARAMETERS
from matrix_turns import TOOL

TOOLS = [{"name": TOOL, "description": DESCRIPTION, "input_schema": PARAMETERS}]
MAX_TOKENS = 4_096
THINKING = {"thinking": {"type": "adaptive"}}


class Messages:
    name = "messages"
    array = "messages"
    openings = 3
    errors = anthropic.APIError

    def client(self, root, transport, key):
        http_client = anthropic.DefaultHttpxClient(transport=transport)
        return anthropic.Anthropic(base_url=root, auth_token=key, max_retries=0, timeout=30, http_client=http_client)

    def async_client(self, root, key):
        return anthropic.AsyncAnthropic(base_url=root, auth_token=key, max_retries=0, timeout=30)

    def user(self, text):
        return [{"role": "user", "content": text}]

    def called(self, id):
        return [{"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": TOOL, "input": {}}]}]

    def said(self, text):
        return [{"role": "assistant", "content": text}]

    def answered(self, results, text):
        results = [{"type": "tool_result", "tool_use_id": id, "content": result} for id, result in results]
        return [{"role": "user", "content": [*results, {"type": "text", "text": text}]}]

    def request(self, talk):
        thinking = THINKING if talk.thinks else {}
        return {"model": talk.model, "max_tokens": MAX_TOKENS, "messages": talk.items, "tools": TOOLS, **thinking}

    def create(self, client, request):
        return client.messages.create(**request)

    def stream(self, client, request):
        return client.messages.stream(**request)

    def final(self, stream):
        return stream.get_final_message()

    def delta(self, event):
        return event.text if event.type == "text" else ""

    def read(self, message):
        content, usage = message.content, message.usage
        calls = [(block.id, block.name, block.input) for block in content if block.type == "tool_use"]
        assert message.stop_reason == ("tool_use" if calls else "end_turn"), message.stop_reason
        assert message.type == "message" and message.role == "assistant"
        text = "".join(block.text for block in content if block.type == "text")
        thoughts = [block for block in content if block.type == "thinking"]
        assert all(block.signature for block in thoughts)
        cached, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        counted = (usage.input_tokens + cached + written, cached, written, usage.output_tokens)
        items = [{"role": "assistant", "content": content}]
        return Had(message.id, text, "".join(block.thinking for block in thoughts), calls, counted, items)

    def as_sent(self, had):
        (message,) = had.items
        blocks = [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in message["content"]]
        return [{"role": "assistant", "content": blocks}]

    def well_formed(self, events, had):
        raw = [event for event in events if event.type.startswith(("message_", "content_block_"))]
        kinds = [event.type for event in raw]
        assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
        assert [kinds.count(kind) for kind in ("message_start", "message_delta", "message_stop")] == [1, 1, 1], kinds
        assert raw[0].message.id == had.id and raw[0].message.content is not None
        places = [(event.type, event.index) for event in raw if event.type.startswith("content_block_")]
        (message,) = had.items
        expected = []
        for index in range(len(message["content"])):
            deltas = [place for place in places if place == ("content_block_delta", index)]
            expected += [("content_block_start", index), *deltas, ("content_block_stop", index)]
        assert places == expected, places

    def names(self, items):
        blocks = [block for item in items if isinstance(item["content"], list) for block in item["content"]]
        return [block["name"] for block in blocks if block["type"] == "tool_use"]

    def broken(self, said):
        return 500, {"type": "error", "error": {"type": "api_error", "message": said}}

    def limited(self, said):
        return 429, {"type": "error", "error": {"type": "rate_limit_error", "message": said}}

    def too_long(self):
        said = "prompt is too long: 12000 tokens > 6000 maximum"
        return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
