"""aioquic as a server of HTTP/3 for `vanward load --h3`. Arguments: vanward, certificate, key. It counts what it is asked for,
runs the generator, and compares. Ends with 1 at the first surprise."""

import asyncio
import json
import sys

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

VANWARD, CERTIFICATE, KEY = sys.argv[1:4]
LIMIT_SECONDS = 60
seen = {"requests": 0, "body_bytes": 0, "handshakes": 0, "resumed": 0}


class Server(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.paths = {}

    def quic_event_received(self, event):
        if type(event).__name__ == "HandshakeCompleted":
            seen["handshakes"] += 1
            seen["resumed"] += event.session_resumed
        for happened in self.http.handle_event(event):
            if isinstance(happened, HeadersReceived):
                self.paths[happened.stream_id] = dict(happened.headers)[b":path"].decode()
            elif isinstance(happened, DataReceived):
                seen["body_bytes"] += len(happened.data)
            if happened.stream_ended:
                self.answer(happened.stream_id, self.paths.pop(happened.stream_id))

    def answer(self, stream, path):
        seen["requests"] += 1
        if path == "/reset":
            self._quic.reset_stream(stream, 0x102)
        else:
            size = int(path.rsplit("/", 1)[1])
            self.http.send_headers(stream, [(b":status", b"103"), (b"link", b"</a>")])
            fields = [(b":status", b"200"), (b"content-length", str(size).encode()), (b"x-long", b"x" * 200)]
            self.http.send_headers(stream, fields, end_stream=size == 0)
            if size:
                self.http.send_data(stream, b"x" * size, end_stream=True)
        self.transmit()


async def load(port, path, *flags):
    seen.update(dict.fromkeys(seen, 0))
    command = [VANWARD, "load", "--h3", "--json", "--quiet", "--max-errors", "100%", "--ca", CERTIFICATE, *flags]
    process = await asyncio.create_subprocess_exec(
        *command, f"https://localhost:{port}{path}", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), LIMIT_SECONDS)
    return json.loads(out)


async def cases(port):
    told = await load(port, "/blank/1000", "-n", "600", "-c", "3", "-m", "8")
    assert told["requests"] == seen["requests"] == 600 and not any(told["errors"].values()), (told["errors"], seen)
    assert told["body_bytes"] == 600_000 and seen["handshakes"] == 3, (told["body_bytes"], seen)
    print("closed loop: the same requests on both sides", flush=True)
    told = await load(port, "/blank/0", "-R", "200", "-n", "200", "-m", "4", "-c", "2")
    assert told["requests"] == seen["requests"] == 200 and told["latency"]["count"] == 200, seen
    print("schedule: the same requests on both sides", flush=True)
    told = await load(port, "/blank/2000000", "-n", "4", "-c", "1", "--body", "x" * 100_000)
    assert told["body_bytes"] == 8_000_000 and seen["body_bytes"] == 400_000, (told["body_bytes"], seen)
    print("bodies in both directions: the same bytes on both sides", flush=True)
    told = await load(port, "/blank/10", "-n", "6", "-c", "1", "--no-keepalive")
    assert told["requests"] == seen["handshakes"] == 6, seen
    assert told["tls"]["resumed"] == seen["resumed"] == 5, (told["tls"], seen)
    print("sessions: the same handshakes on both sides, full and resumed", flush=True)
    told = await load(port, "/reset", "-n", "5", "-c", "1")
    assert told["errors"]["reset"] == seen["requests"] == 5, (told["errors"], seen)
    print("resets: counted as such", flush=True)


async def main():
    settings = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
    settings.load_cert_chain(CERTIFICATE, KEY)
    tickets = {}
    options = {
        "session_ticket_fetcher": tickets.get,
        "session_ticket_handler": lambda ticket: tickets.__setitem__(ticket.ticket, ticket),
    }
    server = await serve("127.0.0.1", 0, configuration=settings, create_protocol=Server, **options)
    port = server._transport.get_extra_info("sockname")[1]
    await cases(port)
    server.close()


asyncio.run(main())
