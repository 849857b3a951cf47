"""Uses toxiproxy-python as its README says, against whatever serves that API.

Arguments: host and port of the API, the address of a web server.
"""

import json
import socket
import sys
import time

import toxiproxy
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists


def ask(listen):
    """Has a request answered through the proxy: what of the answer arrives before the end."""
    host, port = listen.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def refuses(error, do):
    try:
        do()
    except error:
        return True
    return False


def check(holds, what):
    if not holds:
        sys.exit(f"{what} does not hold")


host, port, server = sys.argv[1:]
client = toxiproxy.Toxiproxy()
client.update_api_consumer(host, int(port))
check(client.running() and json.loads(client.version())["version"].count(".") == 2, "a version")
proxy = client.create(upstream=server, name="python")
check(proxy.enabled and not proxy.listen.endswith(":0"), "a port chosen by the system")
check(ask(proxy.listen).startswith(b"HTTP/1.1 200"), "a request that passes")

proxy.add_toxic(name="late", type="latency", stream="upstream", attributes={"latency": 200, "jitter": 0})
began = time.monotonic()
check(ask(proxy.listen).startswith(b"HTTP/1.1 200"), "a late request that passes")
check(time.monotonic() - began >= 0.2, "latency that is felt")
toxic = proxy.get_toxic("late")
check((toxic.type, toxic.stream, toxic.attributes["latency"]) == ("latency", "upstream", 200), "a toxic as added")
check(proxy.destroy_toxic("late") and proxy.get_toxic("late") is None, "a toxic that is gone")

proxy.add_toxic(type="limit_data", attributes={"bytes": 3})
check(list(proxy.toxics()) == ["limit_data_downstream"], "a name that is made up")
check(ask(proxy.listen) == b"HTT", "data that is limited")
check(refuses(InvalidToxic, lambda: proxy.add_toxic(type="noise")), "an unknown toxic that is refused")
check(refuses(ProxyExists, lambda: client.create(upstream=server, name="python")), "a name that is taken")
check(refuses(NotFound, lambda: proxy.destroy_toxic("nobody")), "a toxic that is not found")
check(client.reset() and not proxy.toxics(), "a reset that removes all toxics")

with proxy.down():
    check(refuses(ConnectionRefusedError, lambda: ask(proxy.listen)), "a proxy that is down")
check(ask(proxy.listen).startswith(b"HTTP/1.1 200"), "a proxy that is up again")
made = client.populate([{"name": "python-2", "upstream": server, "listen": "127.0.0.1:0"}])
check([one.name for one in made] == ["python-2"], "proxies that are populated")
client.destroy(proxy)
client.destroy(made[0])
check(not {"python", "python-2"} & set(client.proxies()), "proxies that are gone")
