"""The openai SDK on Responses, for the matrix: with whole histories, and with chains that the provider keeps."""

import openai
from matrix_chat import Chat, too_long
from matrix_had import DESCRIPTION, Failed, Had, PARAMETERS, arguments
from matrix_turns import TOOL
from responses_session import as_sent

TOOLS = [{"type": "function", "name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS, "strict": False}]


class Responses(Chat):
    name = "responses"
    array = "input"
    openings = 4
    errors = (openai.APIError, Failed)

    def called(self, id):
        return [{"type": "function_call", "call_id": id, "name": TOOL, "arguments": "{}"}]

    def answered(self, results, text):
        results = [{"type": "function_call_output", "call_id": id, "output": result} for id, result in results]
        return results + self.user(text)

    def request(self, talk):
        include = ["reasoning.encrypted_content"]
        return {"model": talk.model, "input": talk.items, "tools": TOOLS, "store": False, "include": include}

    def create(self, client, request):
        return client.responses.create(**request)

    def stream(self, client, request):
        return client.responses.stream(**request)

    def final(self, stream):
        return stream.get_final_response()

    def delta(self, event):
        if event.type == "response.failed":
            assert event.response.status == "failed"
            raise Failed(event.response.error.message)
        return event.delta if event.type == "response.output_text.delta" else ""

    def read(self, response):
        assert response.status == "completed" and response.error is None and response.incomplete_details is None
        assert [tool.name for tool in response.tools] == [TOOL], "the client's own alone"
        calls = [item for item in response.output if item.type == "function_call"]
        thoughts = [part.text for item in response.output if item.type == "reasoning" for part in item.summary]
        ids = [item.id for item in response.output]
        assert len(set(ids)) == len(ids), ids
        assert all(item.status == "completed" for item in response.output if item.type != "reasoning")
        usage = response.usage
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
        counted = (usage.input_tokens, usage.input_tokens_details.cached_tokens, 0, usage.output_tokens)
        calls = [(call.call_id, call.name, arguments(call.arguments)) for call in calls]
        return Had(response.id, response.output_text, "".join(thoughts), calls, counted, response.output)

    def as_sent(self, had):
        return [as_sent(item) for item in had.items]

    def well_formed(self, events, had):
        numbers = [event.sequence_number for event in events]
        assert numbers == list(range(len(events))), numbers
        assert events[0].type == "response.created" and events[-1].type == "response.completed"
        lives = [event.response.id for event in events if hasattr(event, "response")]
        assert set(lives) == {had.id}, lives
        assert [event.type for event in events].count("response.created") == 1
        done = [(event.output_index, event.item.id) for event in events if event.type == "response.output_item.done"]
        assert done == [(n, item.id) for n, item in enumerate(had.items)], done
        begun = [(event.output_index, event.item.id) for event in events if event.type == "response.output_item.added"]
        assert begun == done, begun
        within = [(event.output_index, event.item_id) for event in events if hasattr(event, "item_id")]
        assert set(within) <= set(done), within
        assert within == sorted(within, key=lambda place: place[0]), "one item after the other"

    def names(self, items):
        return [item["name"] for item in items if item.get("type") == "function_call"]

    def too_long(self):
        said = "Your input exceeds the context window of this model. Please adjust your input and try again."
        return 400, too_long(said, "input")


class Chained(Responses):
    """Only what is new is sent, with the id of the response before it."""

    name = "chained"

    def request(self, talk):
        body = {"model": talk.model, "input": talk.fresh, "tools": TOOLS}
        return body | ({"previous_response_id": talk.previous} if talk.previous else {})
