"""openai-agents on Responses, unmodified, through the proxy: large results of its tool are evicted, and the model reads
them back with a tool that the agent neither declared nor sees.

Usage: openai_agents.py FOLDER, which takes the configuration, the state and the logs of the run.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"  # read at import

import openai
from agents import Agent, OpenAIProvider, RunConfig, RunHooks, Runner, function_tool
from agents.tool_context import ToolContext
from checks import attempt, check, conclude
from stand import Provider, Proxy, write_config
from talk import FINAL, SYSTEM, Talk, code_word, go_on, result
from verdict import dies, recalled, rule_stood, unseen

STEPS = 23  # the last answer of all repeats a code word that is out of sight
LAST_LARGE = "st020c000"
MOST_TURNS = 40
READER = "read_evicted"


class Hooks(RunHooks):
    """All that the agent is told."""

    def __init__(self, session):
        self.session = session

    async def on_tool_start(self, context, agent, tool):
        self.session.started.append(tool.name)

    async def on_llm_end(self, context, agent, response):
        self.session.output += [item.model_dump(exclude_none=True) for item in response.output]


class Session(Talk):
    """One conversation of several runs: the model asks the user now and then."""

    def __init__(self, name, model):
        super().__init__(name, model)
        self.started, self.output, self.events = [], [], []
        self.items = self.task
        self.last = ""

    def agent(self):
        @function_tool(strict_mode=False)
        def run(context: ToolContext, step: int, part: int = 0, script: str = "") -> str:
            """Runs one step of the task."""
            return result(context.tool_call_id, {"step": step})

        return Agent(name="worker", instructions=SYSTEM, model=self.model, tools=[run])

    async def play(self, url, streamed):
        os.environ["OPENAI_BASE_URL"] = url
        client = openai.AsyncOpenAI(api_key=self.key, max_retries=0, timeout=60)  # the address is the environment's
        provider = OpenAIProvider(openai_client=client)
        options = {"max_turns": MOST_TURNS, "hooks": Hooks(self), "run_config": RunConfig(model_provider=provider)}
        agent = self.agent()
        while not self.finished:
            if streamed:
                done = Runner.run_streamed(agent, self.items, **options)
                self.events += [repr(event) async for event in done.stream_events()]
            else:
                done = await Runner.run(agent, self.items, **options)
            self.items = done.to_input_list()
            self.last = done.final_output
            for item in done.raw_responses:
                self.heard("".join(part.text for out in item.output if out.type == "message" for part in out.content))
            if self.ends_with(self.last, []):
                self.items.append({"role": "user", "content": go_on(self.last[self.last.index("Done up to") :])})
        self.raw = len(json.dumps(self.items))


def well_formed(session):
    """The history that the agent would send: each call once, with one result, and nothing that names the reader."""
    calls = [item["call_id"] for item in session.items if item.get("type") == "function_call"]
    results = [item["call_id"] for item in session.items if item.get("type") == "function_call_output"]
    check(f"{session.model}: every call has its result", calls and calls == results, f"{calls} {results}")
    ids = [item["id"] for item in session.output]
    check(f"{session.model}: every item has an id of its own", len(ids) == len(set(ids)), str(ids))
    kinds = {item["type"] for item in session.output}
    check(f"{session.model}: the items are those of the model", kinds <= {"reasoning", "message", "function_call"}, str(kinds))
    told = json.dumps([session.items, session.output, session.started, session.events])
    check(f"{session.model}: the agent was never told of a tool that it did not declare", READER not in told)
    check(f"{session.model}: its hooks saw its own tool", set(session.started) == {"run"}, str(set(session.started)))


async def through(proxy, sessions):
    """One after the other, whole and streamed."""
    for session, streamed in zip(sessions, (False, True), strict=True):
        try:
            await session.play(proxy.url, streamed)
            check(f"{session.model}: no error", True)
        except Exception as error:  # whatever it is, the agent saw it
            check(f"{session.model}: no error", False, f"{type(error).__name__}: {error}")


def main(folder):
    provider = Provider(folder, STEPS)
    write_config(folder, provider)
    direct = Session("direct", "planned-direct")
    said = "context_length_exceeded"
    dies("without the proxy", lambda: asyncio.run(direct.play(provider.url, False)), openai.BadRequestError, said)
    proxy = Proxy(folder)
    sessions = [Session("planned-whole", "planned-whole"), Session("planned-streamed", "planned-streamed")]
    asyncio.run(through(proxy, sessions))
    for session in sessions:
        word = f"{LAST_LARGE}: {code_word(LAST_LARGE)}"
        check(f"{session.model}: its last output has the code word", FINAL in session.last and word in session.last, session.last)
        well_formed(session)
    evicted = proxy.metric('compactproxy_actions_total{action="evicted"}')
    check("the metrics count evictions", evicted >= len(sessions), str(evicted))
    hidden = proxy.metric('compactproxy_tool_rounds_total{result="again"}')
    check("the metrics count hidden rounds", hidden >= 4, str(hidden))
    check("the proxy ends with status 0", proxy.stop() == 0)
    requests, total = provider.record()
    for session in sessions:
        rule_stood(session, requests)
        recalled(session, session.model, STEPS, requests)
    unseen(sessions, [], requests, total)


if __name__ == "__main__":
    attempt("the suite ran to its end", lambda: main(Path(sys.argv[1])))
    conclude()
