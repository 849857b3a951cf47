# Runs the proxy under strace, has it do what it can, and leaves the file `trace`. Arguments: the program, a folder. The network
# is one of its own, so that its ports are free.
vanward=$1
cd "$2"
ip link set lo up
mkdir site
head --bytes=3000000 /dev/zero >site/long
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 10 -subj /CN=localhost 2>/dev/null
cat >vanward.toml <<END
admin = "$PWD/admin.sock"
log = { target = "$PWD/access.log" }
cache = { memory = "8MiB", disk = { path = "$PWD/disk", size = "64MiB" } }
[[listen]]
address = "127.0.0.1:8080"
[[listen]]
address = "127.0.0.1:8443"
http3 = true
tls = { certificates = [{ cert = "cert.pem", key = "key.pem" }] }
[[route]]
path = "/files"
rewrite = { path = "/" }
files = { root = "$PWD/site" }
[[route]]
path = "/echo-body"
upstream = "app"
request_buffering = true
[[route]]
path = "/large"
upstream = "app"
cache = { default_ttl = "10m" }
[[route]]
upstream = "app"
[upstream.app]
servers = ["http://127.0.0.1:9000"]
END

"$vanward" origin >origin.log &
origin=$!
strace --follow-forks --quiet=all --signal=none --output=trace \
    "$vanward" run --config vanward.toml --pid-file pid >run.log 2>&1 &
traced=$!
trap 'kill "$origin" "$(cat pid 2>/dev/null || echo "$traced")" 2>/dev/null || true' EXIT

# Waits until a command succeeds; half a minute is enough for any of them.
wait_for() {
    for _ in $(seq 300); do
        if "$@"; then return; fi
        sleep 0.1
    done
    echo "waited in vain: $*" >&2
    cat run.log >&2
    exit 1
}
get() { curl --silent --fail --insecure --output /dev/null "$@"; }
is_said() { grep --quiet "$1" run.log; }
other_pid() { [ -s pid ] && [ "$(cat pid)" != "$first" ]; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }

ask_all() {
    for path in files/long large large blank/3000000 large; do
        get "http://127.0.0.1:8080/$path"
        get "https://127.0.0.1:8443/$path"
    done
    head --bytes=20000000 /dev/zero | get --upload-file - http://127.0.0.1:8080/echo-body
    "$vanward" load --h3 --insecure --connections 1 --requests 20 https://127.0.0.1:8443/large >/dev/null
    "$vanward" load --connections 4 --requests 200 http://127.0.0.1:8080/tiny >/dev/null
}

wait_for get http://127.0.0.1:9000/tiny
wait_for get http://127.0.0.1:8080/tiny
wait_for test -s pid
first=$(cat pid)
ask_all
kill -HUP "$first"
wait_for is_said reloaded
kill -USR1 "$first"
kill -USR2 "$first"
wait_for other_pid
wait_for is_said 'has taken over'
ask_all
kill -TERM "$(cat pid)"
wait_for is_gone "$traced"
