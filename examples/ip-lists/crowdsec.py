#!/usr/bin/env python3
"""Keeps a map of Vanward at the decisions of CrowdSec's local API. Needs nothing but Python 3.

CROWDSEC_KEY is the key that `cscli bouncers add vanward` prints; the other variables have defaults."""
import http.client, ipaddress, json, math, os, re, socket, sys, time, urllib.request

API = os.environ.get("CROWDSEC_URL", "http://127.0.0.1:8080").rstrip("/")
KEY = os.environ["CROWDSEC_KEY"]
ADMIN = os.environ.get("VANWARD_ADMIN", "/run/vanward/admin.sock")
MAP = os.environ.get("VANWARD_MAP", "crowdsec")
INTERVAL = float(os.environ.get("CROWDSEC_INTERVAL", "10"))
UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
BATCH = 10_000  # The admin API takes orders of 2 MB.

def seconds(duration):  # As Go writes it: 3h59m49.26s, or with a minus sign after its end.
    parts = re.findall(r"([\d.]+)(h|ms|m|us|µs|ns|s)", duration)
    return 0 if duration.startswith("-") else math.ceil(sum(float(count) * UNITS[unit] for count, unit in parts))

def vanward(method, place, order=None):
    connection = http.client.HTTPConnection("vanward", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(ADMIN)
    connection.request(method, place, json.dumps(order) if order else None)
    answer = connection.getresponse()
    told = json.load(answer)
    connection.close()
    if answer.status != 200:
        raise RuntimeError(told.get("error", answer.reason))
    return told

def decisions(is_first):
    place = f"{API}/v1/decisions/stream?startup={'true' if is_first else 'false'}&scopes=ip,range"
    with urllib.request.urlopen(urllib.request.Request(place, headers={"X-Api-Key": KEY}), timeout=60) as answer:
        told = json.load(answer)
    def bans(name):
        found = [one for one in told.get(name) or [] if one["type"] == "ban"]
        return {str(ipaddress.ip_network(one["value"], strict=False)): seconds(one["duration"]) for one in found}
    new = bans("new")
    return new, bans("deleted").keys() - new.keys()

def follow(process):
    """Takes what has changed since the last call. Returns the proxy's process: another one may have lost the map."""
    now = vanward("GET", "/status")["process"]
    new, deleted = decisions(now != process)
    if now != process:  # Decisions that ended meanwhile are in no list.
        deleted |= {entry["key"] for entry in vanward("GET", f"/maps/{MAP}")["entries"]} - new.keys()
    added = [{"key": key, "ends_in_seconds": left} for key, left in new.items() if left > 0]
    orders = [{"set": added[at:at + BATCH]} for at in range(0, len(added), BATCH)]
    orders += [{"delete": sorted(deleted)}] if deleted else []
    for order in orders:
        vanward("POST", f"/maps/{MAP}/change", order)
    return now

process = None
while True:
    try:
        process = follow(process)
    except Exception as error:  # Then everything is read again.
        process = None
        print(f"map.{MAP} keeps its entries: {error}", file=sys.stderr, flush=True)
    time.sleep(INTERVAL)
