"""The reference MCP client through the proxy: what an agent's conversation lost is listed, searched and read back.

Usage: mcp_client.py FOLDER, which takes the configuration, the state and the logs of the run.
"""

import asyncio
import re
import sys
from pathlib import Path

import httpx2
import session as agent
from checks import attempt, check, conclude
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from session import Session, play
from stand import MAX_RESULT_CHARS, Provider, Proxy, messages, pointers, write_config

STEPS = 12
PAGE_CHARS = 2_000
SESSION = "e2e-conversation"
TOOLS = [
    "read_evicted",
    "session_list",
    "session_history",
    "session_search",
    "memory_search",
    "memory_get",
    "memory_save",
]
MEMORY = "\n[memory]\n"


answers = []  # characters of each


class Server:
    """One client of the proxy's MCP server, by the credential of an agent."""

    def __init__(self, proxy, key, mode="auto"):
        self.url = f"{proxy.root}/_compactproxy/mcp"
        self.headers = {"authorization": f"Bearer {key}", "x-compactproxy-session": SESSION, "x-compactproxy-agent": "e2e"}
        self.mode = mode

    async def __aenter__(self):
        self.http = httpx2.AsyncClient(headers=self.headers, timeout=30)
        self.client = Client(streamable_http_client(self.url, http_client=self.http), mode=self.mode)
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *error):
        await self.client.__aexit__(*error)
        await self.http.aclose()

    async def names(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name, **arguments):
        """A tool's text, and whether it failed."""
        result = await self.client.call_tool(name, arguments)
        text = "".join(block.text for block in result.content)
        answers.append(len(text))
        return text, bool(result.is_error)

    async def whole(self, id):
        """A removed text, page by page."""
        pages, arguments = [], {}
        while True:
            text, failed = await self.call("read_evicted", id=id, **arguments)
            said, page = text.split("]\n", 1)
            pages.append(page)
            places = re.findall(r"(offset|char_offset)=(\d+)", said)
            if failed or not places:
                return "".join(pages)
            arguments = {name: int(count) for name, count in places}


def first_evicted(session, bodies):
    """A result that was evicted, and the id it got."""
    results = [message["content"] for message in session.history if message["role"] == "tool"]
    large = next(text for text in results if len(text) > MAX_RESULT_CHARS)
    opening = large.splitlines()[0]
    shortened = (message for body in bodies for message in messages(body) if opening in message and pointers(message))
    return large, pointers(next(shortened))[0]


async def removed_text(server, large, id):
    check("a removed text is read back page by page", await server.whole(id) == large)
    line = large.splitlines()[200]
    found, failed = await server.call("read_evicted", id=id, pattern=re.escape(line))
    check("a line of it is found by its pattern", not failed and f"201:{line}" in found, found)
    for arguments in [{"id": "0" * 32}, {"id": id, "offset": 10**9}, {"id": id, "pattern": "("}, {"id": "../" + id, "page": 1}, {}]:
        said, failed = await server.call("read_evicted", **arguments)
        check(f"what makes no sense is said: {sorted(arguments)}", failed and said.startswith("Error: "), said)


async def sessions(server, session):
    listed, failed = await server.call("session_list")
    check("session_list has this conversation alone", not failed and listed.startswith("[1 session,"), listed)
    check("and says that it is this one", "this conversation: agent e2e" in listed, listed)
    page, failed = await server.call("session_history", before=2)
    check("session_history reads what was first said", not failed and session.rule in page, page)
    found, failed = await server.call("session_search", query="recalled migrations", maxResults=5)
    check("session_search finds it", not failed and "#1 user" in found and "migrations" in found, found)
    said, failed = await server.call("session_history", sessionId="0" * 32)
    check("another session is unknown", failed, said)


async def memory(server):
    saved, failed = await server.call("memory_save", content="- The user builds with cargo.")
    path = saved.removeprefix("[saved to ").removesuffix("]")
    check("memory_save says where", not failed and path.startswith("memory/"), saved)
    found, failed = await server.call("memory_search", query="cargo")
    check("memory_search finds it", not failed and path in found and "builds with cargo" in found, found)
    got, failed = await server.call("memory_get", path=path)
    check("memory_get reads it", not failed and "builds with cargo" in got, got)
    said, failed = await server.call("memory_get", path="../../etc/passwd")
    check("other files are none", failed, said)


async def through(proxy, session, bodies):
    large, id = first_evicted(session, bodies)
    for mode in ("legacy", "auto"):
        async with Server(proxy, session.key, mode) as server:
            names = await server.names()
            check(f"{mode}: the tools that are enabled are listed", names == TOOLS, str(names))
            await removed_text(server, large, id)
    async with Server(proxy, session.key) as server:
        await sessions(server, session)
        await memory(server)
    async with Server(proxy, "somebody-else") as other:
        said, failed = await other.call("read_evicted", id=id)
        check("another credential reads nothing", failed and large[:20] not in said, said)
        found, _ = await other.call("session_search", query="recalled migrations")
        check("another credential sees no session", "migrations" not in found, found)
        found, _ = await other.call("memory_search", query="cargo")
        check("another credential finds nothing", "cargo" not in found, found)


async def after_a_restart(proxy, folder, session, bodies):
    """A client that is connected goes on over a kill."""
    large, id = first_evicted(session, bodies)
    check("the proxy was killed with -9", proxy.kill() == -9)
    second = Proxy(folder)
    async with Server(second, session.key) as server:
        check("after kill -9 the text is still there", await server.whole(id) == large)
    return second


def main(folder):
    provider = Provider(folder, STEPS)
    write_config(folder, provider)
    config = folder / "proxy.toml"
    text = config.read_text(encoding="utf-8").replace("[tools]\n", f"[tools]\npage_chars = {PAGE_CHARS}\n")
    config.write_text(text + MEMORY, encoding="utf-8")
    proxy = Proxy(folder)
    headers = {"x-compactproxy-session": SESSION, "x-compactproxy-agent": "e2e"}
    session = Session("recalled", "planned-recalled", extra_headers=headers)
    attempt("the agent's session: no error", lambda: play(session, proxy.url, agent.ask))
    requests, _ = provider.record()
    bodies = [request["body"] for request in requests if request["body"]]
    attempt("the client comes through", lambda: asyncio.run(through(proxy, session, bodies)))
    proxy = attempt("a restart is survived", lambda: asyncio.run(after_a_restart(proxy, folder, session, bodies)))
    check("every answer fits a page", answers and all(0 < length <= PAGE_CHARS for length in answers), str(answers))
    check("a signal to stop ends the proxy with status 0", proxy is not None and proxy.stop() == 0)


if __name__ == "__main__":
    attempt("the suite ran to its end", lambda: main(Path(sys.argv[1])))
    conclude()
