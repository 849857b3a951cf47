"""aioquic as a server of HTTP/3, until it is killed. Arguments: certificate, key. Pages of any length at /blank/N; it says what it
was sent."""

import asyncio
import hashlib
import sys

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

CERTIFICATE, KEY = sys.argv[1:3]


class Server(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.requests = {}

    def quic_event_received(self, event):
        for happened in self.http.handle_event(event):
            if isinstance(happened, HeadersReceived):
                self.requests.setdefault(happened.stream_id, (dict(happened.headers), hashlib.sha256()))
            elif isinstance(happened, DataReceived):
                self.requests[happened.stream_id][1].update(happened.data)
            if happened.stream_ended:
                self.answer(happened.stream_id, *self.requests.pop(happened.stream_id))

    def answer(self, stream, head, digest):
        method, path = head[b":method"], head[b":path"].decode()
        body = digest.hexdigest().encode() if method == b"POST" else b"x" * int(path.rsplit("/", 1)[1])
        fields = [(b":status", b"200"), (b"content-length", str(len(body)).encode())]
        self.http.send_headers(stream, fields, end_stream=method == b"HEAD")
        if method != b"HEAD":
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()


async def main():
    settings = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
    settings.load_cert_chain(CERTIFICATE, KEY)
    server = await serve("127.0.0.1", 0, configuration=settings, create_protocol=Server)
    port = server._transport.get_extra_info("sockname")[1]
    print(f"listening on https://127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
