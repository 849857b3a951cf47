"""A client of HTTP/1.1 of a proxy whose server speaks HTTP/3. Arguments: host and port of the proxy, its process ID, and
where the server takes uploads. Ends with 1 at the first surprise."""

import hashlib
import http.client
import os
import signal
import sys
import threading
import time

HOST, PORT, PROCESS, UPLOAD = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
LIMIT_SECONDS = 60
THREADS, REQUESTS = 16, 20


def connect():
    return http.client.HTTPConnection(HOST, PORT, timeout=LIMIT_SECONDS)


def ask(connection, method, path, body=None):
    connection.request(method, path, body)
    response = connection.getresponse()
    received = response.read()
    assert response.status == 200, (method, path, response.status, received[:200])
    assert response.headers["via"].startswith("3.0 "), response.headers["via"]
    return received


def digest(body):
    return hashlib.sha256(body).hexdigest()


def pages(connection):
    """Every page is the beginning of the longest: of the letter x, or as `vanward origin` has it."""
    longest = ask(connection, "GET", "/blank/10000000")
    again = ask(connect(), "GET", "/blank/10000000")
    assert len(longest) == 10_000_000 and digest(longest) == digest(again), (len(longest), len(again))
    assert longest[:1] != b"x" or longest == b"x" * len(longest)
    for size in (128, 166_000):
        received = ask(connection, "GET", f"/blank/{size}")
        assert received == longest[:size], (size, len(received))
    assert ask(connection, "HEAD", "/blank/128") == b""


def uploads(connection):
    for body in (b"", b"short", os.urandom(1_000_000)):
        said = ask(connection, "POST", UPLOAD, body)
        # Some servers say nothing of what they got.
        assert UPLOAD != "/upload" or said in (b"", digest(body).encode()), said[:200]


def many(failures):
    """Requests at once, while the proxy reloads again and again."""

    def run():
        try:
            connection = connect()
            for at in range(REQUESTS):
                size = 1000 + at
                assert len(ask(connection, "GET", f"/blank/{size if at % 4 else 166_000}")) in (size, 166_000)
        except Exception as error:  # told by the main thread
            failures.append(repr(error))

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        os.kill(PROCESS, signal.SIGHUP)
        time.sleep(0.1)
    for thread in threads:
        thread.join()


connection = connect()
pages(connection)
uploads(connection)
failures = []
many(failures)
assert not failures, failures[:3]
