"""What passes on both sides of the proxy: the bytes that a client is given, and the calls that an upstream has open."""

import re
import socket
import threading

import httpx2

PATIENCE = 20  # seconds
PIECE = 65_536  # bytes
MODEL = re.compile(rb'"model":"([^"]+)"')


class Recorder(httpx2.HTTPTransport):
    """A client's transport that keeps the body of the last answer, as it comes."""

    def __init__(self):
        super().__init__()
        self.body = bytearray()

    def handle_request(self, request):
        response = super().handle_request(request)
        self.body = bytearray()
        response.stream = Kept(response.stream, self.body)
        return response


class Kept(httpx2.SyncByteStream):
    def __init__(self, stream, body):
        self.stream, self.body = stream, body

    def __iter__(self):
        for piece in self.stream:
            self.body += piece
            yield piece

    def close(self):
        self.stream.close()


class Tap:
    """Stands in front of the upstream, passes all bytes on, and knows which connections are open. Conversations are told
    apart by the names of their models."""

    def __init__(self, upstream):
        self.upstream = upstream.split(":")
        self.changed = threading.Condition()
        self.open = {}  # of each connection that is open, the last request
        self.latest = {}  # of each conversation, the connection of its last call
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*listener.getsockname())
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def wait_for_end(self, model):
        """Until the connection of the conversation's last call is closed."""
        with self.changed:
            ended = self.changed.wait_for(lambda: self.latest[model] not in self.open, PATIENCE)
            assert ended, f"waited in vain for the end of {model}"

    def _accept(self, listener):
        while True:
            client, _ = listener.accept()
            server = socket.create_connection((self.upstream[0], int(self.upstream[1])))
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._up, args=(client, server), daemon=True).start()
            threading.Thread(target=self._down, args=(server, client), daemon=True).start()

    def _up(self, client, server):
        for piece in pieces(client):
            with self.changed:
                request = piece if piece.startswith(b"POST ") else self.open[client] + piece
                self.open[client] = request
                if named := MODEL.search(request):
                    self.latest[named[1].decode()] = client
            if not passed(server, piece):
                break
        end(server)
        with self.changed:
            self.open.pop(client, None)
            self.changed.notify_all()

    def _down(self, server, client):
        for piece in pieces(server):
            if not passed(client, piece):
                break
        end(client)


def pieces(side):
    """What comes from one side until it ends, however it ends."""
    while True:
        try:
            piece = side.recv(PIECE)
        except OSError:
            return
        if not piece:
            return
        yield piece


def passed(side, piece):
    """Whether there was anybody to take it."""
    try:
        side.sendall(piece)
    except OSError:
        return False
    return True


def end(side):
    try:
        side.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended by itself
