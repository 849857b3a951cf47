"""HTTP/3 of Vanward, as aioquic sees it. Arguments: host and port of the proxy or, with a third one, of the origin, which
sends no Retry and is for short pages. Ends with 1 at the first surprise."""

import asyncio
import socket
import ssl
import sys
import time

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicProtocolVersion

HOST, PORT = sys.argv[1], int(sys.argv[2])
LIMIT_SECONDS = 30
LONG = 8_000_000


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.waiting = {}
        self.received = {}

    def quic_event_received(self, event):
        for happened in self.http.handle_event(event):
            response = self.received.setdefault(happened.stream_id, [{}, b""])
            if isinstance(happened, HeadersReceived):
                response[0].update(happened.headers)
            elif isinstance(happened, DataReceived):
                response[1] += happened.data
            if happened.stream_ended:
                self.waiting[happened.stream_id].set_result(response)

    async def ask(self, path, method="GET", body=b""):
        stream = self._quic.get_next_available_stream_id()
        self.waiting[stream] = asyncio.get_running_loop().create_future()
        pseudo = {":method": method, ":scheme": "https", ":authority": f"localhost:{PORT}", ":path": path}
        fields = [(name.encode(), value.encode()) for name, value in pseudo.items()]
        self.http.send_headers(stream, fields, end_stream=not body)
        if body:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        head, content = await asyncio.wait_for(self.waiting[stream], LIMIT_SECONDS)
        assert head[b":status"] == b"200", head
        return content


def configuration(**options):
    return QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE, server_name="localhost", **options
    )


def connected(settings, **options):
    return connect(HOST, PORT, configuration=settings, create_protocol=Client, **options)


async def pages():
    async with connected(configuration()) as client:
        assert len(await client.ask("/blank/1000")) == 1000
        assert len(await client.ask("/blank/0")) == 0


async def upload():
    async with connected(configuration()) as client:
        body = bytes(range(256)) * 4000
        assert await client.ask("/echo-body", "POST", body) == body, "the body has changed"


async def hundred_requests():
    async with connected(configuration()) as client:
        bodies = await asyncio.gather(*(client.ask(f"/blank/{number}") for number in range(100)))
        assert [len(body) for body in bodies] == list(range(100))


async def long_download():
    async with connected(configuration()) as client:
        assert len(await client.ask(f"/blank/{LONG}")) == LONG


async def key_update():
    async with connected(configuration()) as client:
        await client.ask("/blank/1")
        client.request_key_update()
        for _ in range(3):
            await client.ask("/blank/10000")


async def version_negotiation():
    settings = configuration(supported_versions=[0x1A2A3A4A, QuicProtocolVersion.VERSION_1])
    settings.original_version = 0x1A2A3A4A
    async with connected(settings) as client:
        await client.ask("/blank/1")
        assert client._quic._version == QuicProtocolVersion.VERSION_1


async def resumption():
    tickets = []
    async with connected(configuration(), session_ticket_handler=tickets.append) as client:
        await client.ask("/blank/1")
        while not tickets:
            await client.ping()
    async with connected(configuration(session_ticket=tickets[0])) as client:
        await client.ask("/blank/1")
        assert client._quic.tls.session_resumed, "the ticket was not taken"
        assert not client._quic.tls.early_data_accepted, "early data could be replayed"


async def retry():
    # Clients that never answer: from a number on others have to show that they receive what is sent to them.
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    hellos = []
    for _ in range(200):
        connection = QuicConnection(configuration=configuration())
        connection.connect((HOST, PORT), now=time.time())
        hellos += [datagram for datagram, _ in connection.datagrams_to_send(now=time.time())]
    # All at once: the proxy gives handshakes up that do not go on.
    for hello in hellos:
        silent.sendto(hello, (HOST, PORT))
    async with connected(configuration()) as client:
        await client.ask("/blank/1")
        assert client._quic._retry_source_connection_id is not None, "there was no Retry"
    silent.close()


async def main():
    cases = [pages, upload, hundred_requests, key_update, version_negotiation, resumption]
    # The last one leaves handshakes behind that take their time to be given up.
    for case in cases if len(sys.argv) > 3 else [*cases, long_download, retry]:
        await case()
        print(f"{case.__name__}: as it should be", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
