"""Clients of aioquic that mean harm in QUIC itself: with frames that it would not send. Arguments: host and port of the proxy,
its process and its log. Each kind is bounded: by the end of the connection, with a word in the log, or by what it may cost. And
others are served meanwhile. Ends with 1 at the first surprise."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from aioquic.buffer import UINT_VAR_MAX
from aioquic.quic.connection import QuicConnection, QuicConnectionId
from aioquic.quic.packet_builder import QuicPacketBuilderStop

from client import Client, configuration, connected

PROCESS, LOG = int(sys.argv[3]), Path(sys.argv[4])
# Connections of each kind at once, and what each may cost.
CONNECTIONS = 20
LIMIT_BYTES = 1 << 20
ROUNDS = 100
STREAM_LIMIT, FLOW_CONTROL, ID_LIMIT = 0x4, 0x3, 0x9


def write_ping(self, builder, uids=(), comment=""):
    """In the place of a PING there are as many frames of the attack as there is room for."""
    attack = getattr(self, "attack", None)
    try:
        # One alone would be no packet of an attack.
        for _ in range(200 if attack else 0):
            attack(self, builder)
    except QuicPacketBuilderStop:
        return
    ORDINARY(self, builder, uids, comment)


def hear_retired(self, context, frame_type, buf):
    """Whatever the proxy gives up is given up."""
    buf.pull_uint_var()


ORDINARY = QuicConnection._write_ping_frame
QuicConnection._write_ping_frame = write_ping
QuicConnection._handle_retire_connection_id_frame = hear_retired


def path_challenges(_, builder):
    builder.start_frame(0x1A, capacity=9).push_bytes(os.urandom(8))


def retired_ids(connection, builder):
    """Each one retires all before it (RFC 9000 §19.15)."""
    number = connection.number = getattr(connection, "number", 100) + 1
    own = os.urandom(8)
    frame = builder.start_frame(0x18, capacity=60)
    frame.push_uint_var(number)
    frame.push_uint_var(number)
    frame.push_uint8(len(own))
    frame.push_bytes(own + os.urandom(16))
    connection._host_cids.append(QuicConnectionId(cid=own, sequence_number=number, was_sent=True))


def limits_and_blocks(_, builder):
    """MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED: as high as can be, again and again."""
    for kind, most in (0x10, UINT_VAR_MAX), (0x12, 1 << 60), (0x13, 1 << 60), (0x14, UINT_VAR_MAX), (0x16, 1 << 60):
        builder.start_frame(kind, capacity=9).push_uint_var(most)


def padding(_, builder):
    builder.start_frame(0x00, capacity=1)


async def floods(client, attack):
    """Goes on until the connection has ended, or for long."""
    client._quic.attack = attack
    for number in range(ROUNDS):
        if client._quic._close_event is not None:
            return
        client._quic.send_ping(number)
        client.transmit()
        await asyncio.sleep(0)
    client._quic.attack = None


async def ids_given_up(client):
    """Each ID of the proxy is given up as soon as it is known (RFC 9000 §5.1.2)."""
    for _ in range(ROUNDS):
        client._quic.change_connection_id()
        await client.ping()


async def streams_beyond(client):
    client._quic._remote_max_streams_bidi = 1 << 20
    client._quic._local_max_streams_bidi_used = 0
    for number in range(300):
        client._quic.send_stream_data(4 * number, b"\x01\x20\x00")
    client.transmit()


async def bytes_beyond(client):
    client._quic._remote_max_data = 1 << 40
    client._quic._remote_max_stream_data_bidi_remote = 1 << 40
    # A head that never ends: nothing behind it is read.
    client._quic.send_stream_data(0, b"\x01\x80\x00\xea\x60" + b"x" * 4_000_000)
    client.transmit()


def held_bytes():
    pages = int(Path(f"/proc/{PROCESS}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def ended(client):
    await asyncio.wait_for(client.wait_closed(), 30)
    return client._quic._close_event.error_code


async def case(name, attack, code=None, word=None):
    async with AsyncExitStack() as stack:
        friend = await stack.enter_async_context(connected(configuration()))
        before, most = held_bytes(), 0
        told = LOG.read_text().count(word) if word else 0
        clients = [await stack.enter_async_context(connected(configuration())) for _ in range(CONNECTIONS)]
        under_way = asyncio.gather(*(attack(client) for client in clients))
        while not under_way.done():
            await friend.ask("/blank/1000")
            most = max(most, held_bytes() - before)
        await under_way
        if code is not None:
            codes = {await ended(client) for client in clients}
            assert codes == {code}, f"{name}: the connections end with {codes}"
        await friend.ask("/blank/1000")
        most = max(most, held_bytes() - before)
        assert most < CONNECTIONS * LIMIT_BYTES, f"{name}: {CONNECTIONS} connections cost {most} bytes"
        if word:
            now = LOG.read_text().count(word)
            assert now >= told + 1, f"{name}: the log has no {word}"
        # Each waits for its end otherwise, one behind the other.
        for client in clients:
            client.close()
        print(f"{name}: {most // CONNECTIONS >> 10} KiB for each, and others are served", flush=True)


async def main():
    for attack in path_challenges, limits_and_blocks, padding, retired_ids:
        await case(attack.__name__, lambda client, attack=attack: floods(client, attack))
    await case("ids_given_up", ids_given_up)
    await case("streams_beyond", streams_beyond, STREAM_LIMIT, "http3-malformed")
    await case("bytes_beyond", bytes_beyond, FLOW_CONTROL, "http3-malformed")


asyncio.run(main())
