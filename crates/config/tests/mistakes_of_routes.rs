//! Mistakes in routes: what is wrong with a value, and what makes no sense together.

use config::parse;

/// The mistakes of a file with this route from line 5 on, a line each, without the file's name.
pub(crate) fn said(route: &str) -> Vec<String> {
    let file = format!(
        "listen = [{{ address = \"127.0.0.1:8080\" }}, {{ address = \"127.0.0.1:1\", tcp = \"db\", name = \"bytes\" }}]\n\
         upstream.app.servers = [\"http://a\"]\nupstream.db.servers = [\"tcp://b:1\"]\n[[route]]\n{route}"
    );
    let mistakes = parse(&file, "f").err().unwrap_or_default();
    mistakes.iter().map(|mistake| mistake.to_string().replacen("f:", "", 1)).collect()
}

#[test]
fn links() {
    let said = |lines: &str| {
        let file = format!(
            "listen = [{{ address = \"127.0.0.1:8080\", {lines} }}]\n[profile.slow]\nrate = \"1KB/s\"\n\
             [[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://a\"]\n"
        );
        let mistakes = parse(&file, "f").err().unwrap_or_default();
        mistakes.iter().map(|mistake| mistake.to_string().replacen("f:", "", 1)).collect::<Vec<_>>()
    };
    for (lines, expected) in [
        ("profile = \"slow\"", None),
        ("profile = \"dsl\", latency = \"1ms\"", None),
        (
            "profile = \"slwo\"",
            Some(
                "profile: no link is named \"slwo\"; did you mean \"slow\"? Expected slow, dial-up, edge, slow-3g, 3g, dsl, 4g, lte, \
                                    satellite, wifi, cable, fibre, transatlantic or transpacific",
            ),
        ),
        (
            "latency = \"fast\"",
            Some(
                "latency: \"fast\" is not a number; expected a delay such as 50ms, 2s±100ms, \
                                    50ms±10ms normal or 50ms trace FILE",
            ),
        ),
        (
            "latency = \"trace /nowhere\"",
            Some(
                "latency: /nowhere: it can't be read: No such file or directory (os error 2); expected \
                                    a delay such as 50ms, 2s±100ms, 50ms±10ms normal or 50ms trace FILE",
            ),
        ),
        (
            "loss = \"1%\"",
            Some(
                "loss: it is empty; expected a share of packets and the time until each is sent again, \
                                such as `0.5% 300ms`",
            ),
        ),
    ] {
        let said = said(lines);
        match expected {
            None => assert!(said.is_empty(), "{lines}: {said:?}"),
            Some(expected) => {
                assert_eq!(said.len(), 1, "{lines}: {said:?}");
                assert!(said[0].ends_with(expected), "{lines}: {said:?}");
            }
        }
    }
}

#[test]
fn mistakes() {
    let cases: &[(&str, &[&str])] = &[
        (
            "upstream = \"db\"",
            &["5:12: upstream: upstream \"db\" has a tcp:// server, which speaks no HTTP; expected http:// \
                 or https:// servers, or a listener with tcp"],
        ),
        (
            "upstream = \"app\"\nmirror = { upstream = \"ap\", share = 10, mark = \"Host\" }",
            &[
                "6:23: upstream: no upstream is named \"ap\"; did you mean \"app\"? Expected app or db",
                "6:37: share: this is an integer; expected a share such as 1%, 0.5% or 100%",
                "6:48: mark: Host cannot be edited: use the host rewrite; expected the name of a header field such as X-Tenant",
            ],
        ),
        (
            "upstream = \"app\"\nmirror = { upstream = \"db\", bodies = \"1GB\" }",
            &[
                "6:23: upstream: upstream \"db\" has a tcp:// server, which speaks no HTTP; expected http:// or https:// servers, or a listener with tcp",
                "6:38: bodies: 1GB is too large; expected a size in bytes such as 512, 64k, 256MB or 64KiB, 0 to 16MiB",
            ],
        ),
        (
            "upstream = \"app\"\nmirror = { share = \"10%\" }",
            &["6:10: mirror has no upstream; expected the name of an upstream: NAME of [upstream.NAME]"],
        ),
        (
            "upstream = \"app\"\nforward_auth = { upstream = \"app\", path = \"verify\", copy_headers = [\"Host\", \"X A\"], copy_headers_as = { Host = \"X-A\" } }",
            &[
                "6:43: path: \"verify\" is no path; expected a path such as /verify, with a query if needed",
                "6:69: copy_headers: Host cannot be edited: use the host rewrite; expected the name of a header field such as X-Tenant",
                "6:77: copy_headers: \"X A\" is no name of a header field; names are letters, digits and -; expected the name of a header field such as X-Tenant",
                "6:105: copy_headers_as: Host cannot be edited: use the host rewrite; expected the name of a header field such as X-Tenant",
            ],
        ),
        (
            "upstream = \"app\"\nforward_auth = { upstream = \"app\", cache = { key = [\"path\", \"host\"] } }",
            &["6:53: key: it does not distinguish clients, so one client's permission would hold for \
               all; expected a part of the client as well, such as cookie:NAME or client"],
        ),
        (
            "upstream = \"app\"\nforward_auth = { upstream = \"app\", cache = { key = \"listener\", ttl = \"0s\" } }",
            &[
                "6:52: key: \"listener\" is not known here; expected client, client/24, header:NAME, cookie:NAME, query:NAME, method, host or path",
                "6:70: ttl: 0s is too small; expected a duration such as 50ms, 1.5s, 2m or 1h, 1ms to 365d",
            ],
        ),
        (
            "upstream = \"app\"\nrequire = \"any\"\nforward_auth = { upstream = \"app\" }",
            &["6:11: require: the route has fewer than two authentication methods; expected two of auth, \
               jwt, web_bot_auth and forward_auth"],
        ),
        (
            "upstream = \"app\"\nforward_auth = { upstream = \"app\", copy_headers = \"X-User\" }\nrequest_headers = { set = { x-user = \"1\" } }",
            &[
                "7:29: request_headers: x-user is one of forward_auth.copy_headers; expected another name in one of them",
            ],
        ),
        (
            "listener = \"bytes\"\nupstream = \"app\"",
            &["5:12: listener: \"bytes\" has tcp, so routes do not apply to it; expected a listener \
               without tcp"],
        ),
        (
            "listener = \"web\"\nupstream = \"app\"",
            &["5:12: listener: no listener is named \"web\"; expected 127.0.0.1:1, 127.0.0.1:8080 or bytes"],
        ),
        (
            "upstream = \"app\"\nredirect = { to = \"/\" }",
            &["6:12: [[route]] has upstream and redirect; expected one of them"],
        ),
        (
            "upstream = \"app\"\ncache = { targets = [\"x\", \"a-cache-control\", \"A-Cache-Control\"], send_targets = [\"b-cache-control\"] }",
            &[
                "6:9: cache: it needs a store for responses; expected a table [cache] with memory = \
                 \"256MiB\"",
                "6:22: targets: \"x\" is no field with directives for caches; expected surrogate-control, x-accel-expires, or a name that ends in -cache-control, such as cdn-cache-control",
                "6:46: targets: \"A-Cache-Control\" appears twice; expected surrogate-control, x-accel-expires, or a name \
                 that ends in -cache-control, such as cdn-cache-control",
                "6:82: send_targets: \"b-cache-control\" is not in targets, and is sent anyway; expected names from targets",
            ],
        ),
        (
            "upstream = \"app\"\nresponse_delay = \"1s\"\ncache = {}",
            &[
                "6:18: response_delay: a route with cache cannot use it; expected delay, or a route without \
                 cache",
                "7:9: cache: it needs a store for responses; expected a table [cache] with memory = \
                 \"256MiB\"",
            ],
        ),
        (
            "host = \"*.10.0.0.1\"\nupstream = \"app\"",
            &["5:8: host: \"*.10.0.0.1\" is not a host: it is an address; expected a host such as \
                 www.example.com, *.example.com or ~ regex, without port"],
        ),
        (
            "host = [\"a\", \"~ a[\"]\nupstream = \"app\"",
            &["5:18: host: in the expression: unclosed character class; expected a host such as \
                 www.example.com, *.example.com or ~ regex, without port"],
        ),
        (
            "path = \"= /a/../b\"\nupstream = \"app\"",
            &["5:8: path: \"/a/../b\" is not a path prefix: it has a . or .. segment; expected a path \
                 prefix such as / or /api, /api* for a prefix of the text, = /path for one path, or ~ regex"],
        ),
        (
            "path = '~ /(a|b'\nupstream = \"app\"",
            &["5:12: path: in the expression: unclosed group; expected a path prefix such as / or /api, \
                 /api* for a prefix of the text, = /path for one path, or ~ regex"],
        ),
        (
            "path = \"~ \\u002f(\"\nupstream = \"app\"",
            &["5:8: path: in the expression: unclosed group; expected a path prefix such as / or /api, \
                 /api* for a prefix of the text, = /path for one path, or ~ regex"],
        ),
        (
            "methods = [\"get\"]\nupstream = \"app\"",
            &[
                "5:12: methods: \"get\" is not in capitals, as methods are; did you mean \"GET\"? Expected a method such as GET or POST",
            ],
        ),
        (
            "headers = { \"X A\" = true }\nupstream = \"app\"",
            &[
                "5:13: headers: \"X A\" cannot be the name of a field; expected the name of a header field such as \
                 X-Tenant",
            ],
        ),
        (
            "headers = { X-A = false }\nupstream = \"app\"",
            &["5:19: headers: this is true or false; expected true for any value, a value, a beginning \
                 such as \"a*\", or \"~ regex\""],
        ),
        (
            "headers = { x-a = true, X-A = \"b\" }\nupstream = \"app\"",
            &["5:25: headers: the same name appears twice; expected a name other than the one in line 5"],
        ),
        (
            "split = { app = 0 }",
            &["5:9: split: no upstream gets a share; expected a weight above 0, such as { app = 9, \
               canary = 1 }"],
        ),
        (
            "split = { ap = 1 }",
            &["5:11: split: no upstream is named \"ap\"; did you mean \"app\"? Expected app or db"],
        ),
        (
            "split = \"app\"",
            &["5:9: split: this is a string; expected weights of upstreams such as { app = 9, canary = 1 }"],
        ),
        (
            "redirect = { to = \"www.example.com\" }",
            &["5:20: to: it has to begin with a slash, http://, https:// or $scheme://; expected a URL \
                 such as https://www.example.com$path, or a path"],
        ),
        (
            "redirect = { to = \"https://$hsot/\" }",
            &[
                "5:28: to: there is no variable $hsot; did you mean \"$host\"? Expected a URL such as https://www.example.com$path, \
                 or a path",
            ],
        ),
        (
            "redirect = { to = \"/$1\" }",
            &["5:21: to: $1 is a group of a pattern, and there is no pattern here; expected a URL such as \
                 https://www.example.com$path, or a path"],
        ),
        (
            "path = \"~ /(a)\"\nredirect = { to = \"/$2\" }",
            &["6:21: to: $2 is no group of the pattern; expected a URL such as \
                 https://www.example.com$path, or a path"],
        ),
        (
            "redirect = { to = \"/\", status = 304 }",
            &["5:33: status: 304 is not the status of a redirect; expected 301, 302, 303, 307 or 308"],
        ),
        (
            "redirect = {}",
            &["5:12: redirect has no to; expected a URL such as https://www.example.com$path, or a path"],
        ),
        (
            "respond = { status = 204, body = \"x\" }",
            &["5:34: body: a response with status 204 has no body; leave it out"],
        ),
        (
            "respond = { status = 600 }",
            &["5:22: status: 600 is too large; expected a whole number, 200 to 599"],
        ),
        (
            "respond = { status = 200, content_type = \"a\\nb\" }",
            &["5:42: content_type: the content type \"a\\nb\" is no field value; write one such as \
                 text/plain"],
        ),
        (
            "respond = { status = 200, body = \"a\", file = \"/nowhere/a.html\" }",
            &["5:46: file: /nowhere/a.html: it can't be read: No such file or directory (os error 2); \
                 expected the path of a page such as /etc/vanward/404.html"],
        ),
        (
            "respond = { status = 200, file = \"/dev/zero\" }",
            &["5:34: file: /dev/zero: it is not a file; expected the path of a page such as \
                 /etc/vanward/404.html"],
        ),
        ("files = {}", &["5:9: files has no root; expected the path of a directory such as /srv/www"]),
        (
            "upstream = \"app\"\nfiles = { root = \"/usr\" }",
            &["6:9: [[route]] has upstream and files; expected one of them"],
        ),
        (
            "files = { root = \"\" }",
            &["5:18: root: it is empty; expected the path of a directory such as /srv/www"],
        ),
        (
            "files = { root = \"/usr\", index = [\"a/b\", \".x\", \"\"] }",
            &[
                "5:35: index: \"a/b\" is not the name of a file that clients can get; expected the name of a \
                 file such as index.html",
                "5:42: index: \".x\" is not the name of a file that clients can get; expected the name of a \
                 file such as index.html",
                "5:48: index: \"\" is not the name of a file that clients can get; expected the name of a \
                 file such as index.html",
            ],
        ),
        (
            "files = { root = \"/usr\", fallback = \"/../etc/passwd\" }",
            &["5:37: fallback: \"/../etc/passwd\" is not the path of a file that clients can get; \
               expected the path of a file beneath the root such as /index.html"],
        ),
        (
            "upstream = \"app\"\naccel = { x = \"/usr\", \"/a/../b\" = \"/usr\", \"/ok\" = \"usr\" }",
            &[
                "6:11: accel: \"x\" is no beginning of a path; expected the beginning of paths, such as /protected/",
                "6:23: accel: \"/a/../b\" is no beginning of a path; expected the beginning of paths, such as /protected/",
                "6:51: accel: \"usr\" is not an absolute path, as servers name files; expected the path of a directory such as /srv/www",
            ],
        ),
        (
            "respond = { status = 404 }\naccel = { \"/a\" = \"/usr\" }",
            &["4:1: accel: this route asks no server; expected upstream or split, or files"],
        ),
        (
            "upstream = \"app\"\non_status = { 404 = { upstream = \"ap\" } }",
            &["6:34: on_status: no upstream is named \"ap\"; did you mean \"app\"? Expected app or db"],
        ),
        (
            "upstream = \"app\"\non_status = { 404 = { upstream = \"app\" }, \"5xx\" = { upstream = \"app\", path = \"/x\" } }",
            &[
                "6:15: on_status: this is the upstream of the route, which would get the same request again; expected another upstream, path, or retry",
            ],
        ),
        (
            "upstream = \"app\"\non_status = { 399 = { upstream = \"app\" }, \"3xx\" = {}, \"*\" = {}, 404 = {} }",
            &[
                "6:15: on_status: \"399\" is no status of an error; expected 400 to 599, 4xx or 5xx",
                "6:43: on_status: \"3xx\" is no status of an error; expected 400 to 599, 4xx or 5xx",
                "6:55: on_status: \"*\" is no status of an error; expected 400 to 599, 4xx or 5xx",
                "6:71: on_status has no upstream; expected the name of an upstream: NAME of [upstream.NAME]",
            ],
        ),
        (
            "upstream = \"app\"\non_status = { 404 = { upstream = \"app\", path = \"x\" }, 405 = { upstream = \"app\", path = \"/{code}\" } }",
            &[
                "6:48: path: \"x\" is not the path of a page; expected a path such as /error.html or /{status}.html",
                "6:88: path: \"/{code}\" is not the path of a page; expected a path such as /error.html or /{status}.html",
            ],
        ),
        (
            "upstream = \"app\"\non_status = { 404 = { upstream = \"app\", fields = { X-Code = \"$status\" } } }",
            &["6:52: fields: the same request is sent again; expected path, or request_headers of the route"],
        ),
        (
            "upstream = \"app\"\non_status = { 404 = { upstream = \"app\", path = \"/x\", fields = { Host = \"a\" } } }",
            &[
                "6:65: fields: Host cannot be edited: use the host rewrite; expected the name of a header field such as X-Tenant",
            ],
        ),
        (
            "upstream = \"app\"\non_status = { 404 = { upstream = \"app\", path = \"/x\", fields = { X-Code = \"$code\" } } }",
            &[
                "6:75: fields: there is no variable $code; expected a value, with variables such as $client_address",
            ],
        ),
        (
            "respond = { status = 404 }\non_status = { 404 = { upstream = \"app\", path = \"/x\" } }",
            &["4:1: on_status: this route asks no server; expected upstream or split, or error_pages"],
        ),
        (
            "files = { root = \"/usr\", else = { upstream = \"ap\" } }",
            &["5:46: else: no upstream is named \"ap\"; did you mean \"app\"? Expected app or db"],
        ),
        (
            "files = { root = \"/usr\", else = {} }",
            &["5:33: else has no upstream; expected the name of an upstream: NAME of [upstream.NAME]"],
        ),
        (
            "files = { root = \"/usr\", fallback = \"/a\", else = { upstream = \"app\" } }",
            &[
                "5:50: files has fallback and else: with a fallback, every path has a file; expected one of them",
            ],
        ),
        (
            "files = { root = \"/usr\", cache_control = \"a\\nb\" }",
            &[
                "5:42: cache_control: \"a\\nb\" is not a value for Cache-Control; expected directives such as \
                 max-age=3600",
            ],
        ),
        (
            "files = { root = \"/usr\" }\nresponse_delay = \"1s\"",
            &["6:18: response_delay: a route with files has no server whose responses could be delayed; \
                 expected delay"],
        ),
        (
            "upstream = \"app\"\nauth = { users = \"/nowhere/users\" }",
            &["6:18: users: /nowhere/users: it can't be read: No such file or directory (os error 2); \
                 expected the path of a file of users as htpasswd -B writes it"],
        ),
        (
            "upstream = \"app\"\nauth = { realm = \"a\\nb\" }",
            &[
                "6:8: auth has no users; expected the path of a file of users as htpasswd -B writes it",
                "6:18: realm: \"a\\nb\" has a control character; expected text without control characters",
            ],
        ),
        (
            "upstream = \"app\"\nrate_limit = { rate = \"100\" }",
            &["6:23: rate: \"100\" has no unit of time; did you mean \"100/s\"? Expected a number of \
               requests in a time, such as 100/s, 10/m or 5/10s"],
        ),
        (
            "upstream = \"app\"\nrate_limit = { rate = \"1/s\", shared = \"local\" }",
            &["6:39: shared: instances share through [redis], which is missing; expected [redis] with \
               its url as well, or no shared"],
        ),
        (
            "upstream = \"app\"\nforward_auth = { upstream = \"app\", cache = { key = \"client\", shared = true } }",
            &["6:71: shared: instances share through [redis], which is missing; expected [redis] with \
               its url and secret_file as well, or no shared"],
        ),
        (
            "upstream = \"app\"\nrate_limit = { rate = \"100/x\" }",
            &["6:23: rate: unknown unit \"x\"; expected a number of requests in a time, such as 100/s, \
                 10/m or 5/10s"],
        ),
        (
            "upstream = \"app\"\nrate_limit = { rate = \"0/s\" }",
            &[
                "6:23: rate: \"0/s\" does not begin with a number of 1 or more; expected a number of requests in a time, such as \
                 100/s, 10/m or 5/10s",
            ],
        ),
        (
            "upstream = \"app\"\nrate_limit = { rate = \"1/2d\" }",
            &["6:23: rate: the time of a rate is from 1ms to a day, not 172800s"],
        ),
        (
            "upstream = \"app\"\nrate_limit = { rate = \"1/d\", burst = 1000 }",
            &["6:38: burst: a burst of 1000 would take more than a year at this rate; use a smaller one"],
        ),
        (
            "upstream = \"app\"\nrate_limit = { rate = \"1/s\", key = [] }",
            &["6:23: key is empty: say what requests are counted by, or \"route\" for all of the route \
                 together"],
        ),
        (
            "upstream = \"app\"\nrate_limit = { rate = \"1/s\", key = \"ip\" }",
            &["6:36: key: \"ip\" has another name here; did you mean \"client\"? Expected client, \
               client/24, user, header:NAME, cookie:NAME, query:NAME, host, listener, or route for all \
               its requests together"],
        ),
        (
            "upstream = \"app\"\nrate_limit = { key = \"host\" }",
            &["6:14: rate_limit has no rate; expected a number of requests in a time, such as 100/s, 10/m \
                 or 5/10s"],
        ),
        (
            "upstream = \"app\"\nconcurrency = { by = \"host\" }",
            &["6:15: concurrency has no max; expected a whole number, 1 to 4294967295"],
        ),
        (
            "upstream = \"app\"\nconcurrency = { max = 0 }",
            &["6:23: max: 0 is too small; expected a whole number, 1 to 4294967295"],
        ),
        (
            "upstream = \"app\"\nconcurrency = { max = 1, by = [] }",
            &[
                "6:15: by is empty: say what requests are counted by, or \"route\" for all of the route together",
            ],
        ),
        (
            "upstream = \"app\"\nconcurrency = { max = 1, wait = \"2s\" }",
            &["6:33: wait: without a queue, no request waits; expected queue as well, or no wait"],
        ),
        (
            "upstream = \"app\"\nconcurrency = { max = 1, shared = \"local\" }",
            &[
                "6:35: shared: instances share through [redis], which is missing; expected [redis] with its url as \
                 well, or no shared",
            ],
        ),
        (
            "upstream = \"app\"\nrewrite = { path = \"v1\" }",
            &["6:21: path: it has to begin with a slash; expected a path such as /v1, or with variables \
                 /users/$1"],
        ),
        (
            "upstream = \"app\"\nrewrite = { pattern = \"/a\" }",
            &["6:23: rewrite has pattern without path; expected path, the replacement for matching paths"],
        ),
        (
            "upstream = \"app\"\nrewrite = { path = \"/b\", pattern = \"/a\", normalize = true }",
            &[
                "6:54: rewrite.normalize is for the rest of a path behind a prefix; expected path without pattern, in a \
                 route for a prefix",
            ],
        ),
        (
            "upstream = \"app\"\nrewrite = { path = \"/b/$1\", pattern = \"/a(\" }",
            &[
                "6:42: pattern: in the expression: unclosed group; expected a regular expression over the whole \
                 path such as /a/(.*)",
            ],
        ),
        (
            "upstream = \"app\"\nrewrite = { host = \"a/b\" }",
            &["6:22: host: '/' has no place here; in a URL, escape it as %XX; expected a host such as \
                 $host or tenant.internal:8080"],
        ),
        (
            "upstream = \"app\"\nrequest_headers = { set = { Host = \"a\", Content-Length = \"1\" }, remove = \"a b\" }",
            &[
                "6:29: set: Host cannot be edited: use the host rewrite; expected the name of a header field \
                 such as X-Tenant",
                "6:41: set: Content-Length cannot be edited: bodies are framed by the proxy; expected the \
                 name of a header field such as X-Tenant",
                "6:74: remove: \"a b\" is no name of a header field; names are letters, digits and -; \
                 expected the name of a header field such as X-Tenant",
            ],
        ),
        (
            "upstream = \"app\"\nrequest_headers = { add = { A = \"b $status\" } }",
            &["6:36: add: $status is not known yet where this is used; expected a value, with variables \
                 such as $client_address"],
        ),
        (
            "upstream = \"app\"\ncookies = { same_site = \"none\" }",
            &["6:11: cookies: SameSite=None needs Secure; set secure = true as well"],
        ),
        (
            "upstream = \"app\"\ncookies = { domain = \"removed\" }",
            &[
                "6:22: domain: \"removed\" is not known here; did you mean \"remove\"? Expected \"remove\", or a table such as { \
                 \"app.internal\" = \"www.example.com\" }",
            ],
        ),
        (
            "upstream = \"app\"\nerror_pages = { 200 = \"a\" }",
            &[
                "6:17: error_pages: \"200\" is no status of an error; expected 404, 4xx, 5xx, or * for all errors",
            ],
        ),
        (
            "upstream = \"app\"\ncors = {}",
            &["6:8: cors has no origins; expected an origin such as https://app.example.com or \
                 https://*.example.com, or *, or an array of them"],
        ),
        (
            "upstream = \"app\"\ncors = { origins = [\"https://a.example/\", \"A.example\"] }",
            &[
                "6:21: origins: \"https://a.example/\" is no origin, which ends with its host or port; did you mean \
                 \"https://a.example\"? Expected an origin such as https://app.example.com or https://*.example.com, or *",
                "6:43: origins: \"A.example\" is no origin, which has a scheme and a host; did you mean \"https://a.example\"? \
                 Expected an origin such as https://app.example.com or https://*.example.com, or *",
            ],
        ),
        (
            "upstream = \"app\"\ncors = { origins = [\"https://a.example:443\", \"https://B.example\", \"https://*\"] }",
            &[
                "6:21: origins: \"https://a.example:443\" has the port that browsers leave out, since it is the scheme's own; \
                 did you mean \"https://a.example\"? Expected an origin such as https://app.example.com or \
                 https://*.example.com, or *",
                "6:46: origins: \"https://B.example\" is not written as browsers do, in lower-case letters, digits and \
                 hyphens; did you mean \"https://b.example\"? Expected an origin such as https://app.example.com or \
                 https://*.example.com, or *",
                "6:67: origins: \"https://*\" has a * that stands neither alone nor for the first labels of a host; \
                 expected an origin such as https://app.example.com or https://*.example.com, or *",
            ],
        ),
        (
            "upstream = \"app\"\ncors = { origins = \"*\", headers = \"*\", credentials = true }",
            &[
                "6:20: origins: with credentials, browsers refuse *, and every site could act as your users; expected the \
                 origins by name, or credentials = false",
                "6:35: headers: with credentials, browsers treat * as a name, not as all; expected the \
                 names, or credentials = false",
            ],
        ),
        (
            "upstream = \"app\"\ncors = { origins = [\"*\", \"https://a\"], methods = \"put\", expose = \"X Y\" }",
            &[
                "6:21: origins: * allows every origin, also those beside it; expected * alone, or the origins \
                 without it",
                "6:50: methods: \"put\" is not in capitals, as methods are; did you mean \"PUT\"? Expected a method such as \
                 PUT, or *",
                "6:66: expose: \"X Y\" cannot be the name of a field; expected the name of a header field such as \
                 Content-Type, or *",
            ],
        ),
        (
            "upstream = \"app\"\nmethods = [\"GET\", \"PUT\"]\ncors = { origins = \"https://a\" }",
            &["7:8: cors: browsers send OPTIONS first, which methods of this route excludes; expected \
               methods with \"OPTIONS\""],
        ),
        (
            "upstream = \"app\"\ncors = { origins = \"https://a\" }\nresponse_headers = { set = { access-control-allow-origin = \"*\" } }",
            &["7:30: response_headers: cors writes access-control-allow-origin; expected one of them"],
        ),
        (
            "upstream = \"app\"\nmaintenance = \"on\"",
            &["6:15: maintenance: this is a string; expected true, false, or a table such as { page = \
                 \"maintenance.html\", retry_after = \"10m\" }"],
        ),
        (
            "upstream = \"app\"\nmaintenance = { page = \"/nowhere/a.html\", retry_after = 10, allow = \"10.0.0.1\", until = \"1h\" }",
            &[
                "6:24: page: /nowhere/a.html: it can't be read: No such file or directory (os error 2); expected the path of \
                 a page such as /etc/vanward/404.html",
                "6:57: retry_after: 10 has no unit; did you mean \"10s\"? Expected a duration such as 50ms, 1.5s, 2m or 1h, \
                 1ms to 365d",
                "6:69: allow: this is a string; expected an array, each a network such as 10.0.0.0/8 or fd00::/8, or one \
                 address",
                "6:81: unknown key \"until\" in maintenance; it is an option of [[fault]]; expected on, page, retry_after or allow",
            ],
        ),
        (
            "upstream = \"app\"\nsticky = { by = \"cookie\" }",
            &["6:10: sticky: this route has no split; expected split, or sticky of [upstream.NAME]"],
        ),
        (
            "split = { app = 1 }\nsticky = { by = \"origin-cookie:id\" }",
            &[
                "6:17: sticky: a client would change its side when its server sets the cookie; expected by = \"cookie\"",
            ],
        ),
        (
            "split = { app = 1 }\nsticky = { by = \"client\", shared = true }",
            &[
                "6:27: unknown key \"shared\" in sticky; expected by, ttl, name, path, domain, secure, same_site or secret_file",
            ],
        ),
        (
            "split = { app = 1 }\nsticky = { by = \"client\", ttl = \"1h\", sessions = 9, name = \"a\" }",
            &[
                "6:33: sticky: a split has no sessions that could expire; expected no ttl",
                "6:39: unknown key \"sessions\" in sticky; expected by, ttl, name, path, domain, secure, same_site or secret_file",
                "6:60: sticky: name is for the inserted cookie; expected by = \"cookie\"",
            ],
        ),
        (
            "upstream = \"app\"\ncookie = { \"a b\" = \"1\", c = 1 }",
            &[
                "6:12: cookie: \"a b\" cannot be the name of a cookie; expected the name of a cookie",
                "6:29: cookie: this is an integer; expected true for any value, a value, a beginning such as \"a*\", or \
                 \"~ regex\"",
            ],
        ),
        (
            "upstream = \"app\"\nretry = { on = [\"conect\"] }",
            &[
                "6:17: on: \"conect\" is not known here; did you mean \"connect\"? Expected connect, reset, timeout, a status \
                 such as 503, \"5xx\" or \"502-504\", or a status of gRPC such as grpc-unavailable",
            ],
        ),
        (
            "upstream = \"app\"\nretry = { budget = \"10%\" }",
            &["6:11: unknown key \"budget\" in retry; expected on, attempts, within or non_idempotent"],
        ),
        (
            "name = \"a\"\nupstream = \"app\"\n[[route]]\nname = \"a\"\npath = \"/b\"\nupstream = \"app\"",
            &["8:8: name: \"a\" appears twice; expected a name other than the one in line 5"],
        ),
        (
            "upstream = \"app\"\nmethods = [\"GET\", \"POST\"]\n[[route]]\nmethods = [\"POST\", \"GET\"]\nupstream = \"app\"",
            &["7:1: [[route]]: any host with path \"/\" appears twice; expected a host, path or \
               condition other than the one in line 4"],
        ),
        (
            "clients = [\"10.0.0.1/8\"]\nupstream = \"app\"",
            &["5:12: clients: 10.0.0.1/8 has address bits beyond its prefix length; did you mean \
               \"10.0.0.0/8\"? Expected a network such as 10.0.0.0/8 or fd00::/8, or one address"],
        ),
        (
            "timeouts = { upstream_first_byte = 5 }\nupstream = \"app\"",
            &[
                "5:36: upstream_first_byte: 5 has no unit; did you mean \"5s\"? Expected a duration such as 50ms, 1.5s, 2m or 1h, \
                 1ms to 1d",
            ],
        ),
    ];
    for (route, expected) in cases {
        assert_eq!(said(route), *expected, "{route}");
    }
}

/// The language's own table has more (`expression/tests/mistakes.txt`): these are places in a file.
#[test]
fn conditions() {
    const EXPECTED: &str = "xpected a condition such as 'request.method == \"GET\"'";
    for (when, expected) in [
        (
            r#"'request.methud == "GET"'"#,
            r#"5:9: when: the name request.methud does not exist; did you mean "request.method"? Expected a condition"#,
        ),
        (
            r#""request.method = 'GET'""#,
            "5:24: when: '=' is not part of the language; to compare, write ==; expected a condition",
        ),
        ("'request.method'", "5:9: when: a condition is true or false; this is a text; compare it, as in"),
        (
            "'response.status == 200'",
            "5:9: when: response.status is known only once the response has arrived",
        ),
        ("'client.user == \"ann\"'", "5:9: when: client.user is known only once the client is authenticated"),
        (
            "'jwt.claims.sub == \"ann\"'",
            "5:9: when: jwt.claims is known only once the client is authenticated; this expression is evaluated once a \
             request has arrived; expected it in request_headers",
        ),
        ("true", "5:8: when: this is true or false; expected a condition such as"),
    ] {
        let said = said(&format!("when = {when}\nupstream = \"app\""));
        assert!(said.len() == 1 && said[0].starts_with(expected), "{when}: {said:?}");
    }
    assert!(said("when = 'request.methud'\nupstream = \"app\"")[0].ends_with(EXPECTED));
}

#[test]
fn what_a_route_without_a_server_has_no_use_for_is_a_warning() {
    let route =
        "[[route]]\nredirect = { to = \"/a\" }\nrewrite = { path = \"/b\" }\nretry = { attempts = 1 }";
    let reading = config::examine(&format!("listen = [{{ address = \"127.0.0.1:8080\" }}]\n{route}"), "f");
    assert!(reading.config.is_some(), "{:?}", reading.mistakes);
    let warnings: Vec<String> = reading.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["f:4:11: rewrite: this route asks no server", "f:5:9: retry: this route asks no server"]
    );
}

#[test]
fn a_route_that_no_request_reaches_is_a_warning() {
    let warnings = |routes: &str| {
        let listen = "[[listen]]\nname = \"web\"\naddress = \"127.0.0.1:8080\"\n";
        let upstream = "[upstream.app]\nservers = [\"http://127.0.0.1:9000\"]\n";
        let reading = config::examine(&format!("{listen}{upstream}{routes}"), "f");
        assert!(reading.config.is_some(), "{:?}", reading.mistakes);
        reading.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let of_all = "[[route]]\nlistener = \"web\"\nupstream = \"app\"\n";
    let of_host = "[[route]]\nhost = \"a.example\"\nupstream = \"app\"\n";
    let of_two = "[[route]]\npath = \"/a\"\nmethods = [\"GET\", \"PUT\"]\nupstream = \"app\"\n";
    assert_eq!(
        warnings(&format!("{of_host}{of_all}")),
        ["f:6:1: route \"a.example/\" is never reached: the route in line 9 takes its requests"]
    );
    let trace = of_two.replace("\"GET\", \"PUT\"", "\"TRACE\"");
    assert_eq!(
        warnings(&trace),
        ["f:6:1: route \"/a\" is never reached: TRACE requests get 405 before any route applies"]
    );
    assert_eq!(warnings(&format!("{of_host}{of_two}")), Vec::<String>::new());
}

#[test]
fn a_file_without_http_needs_no_route() {
    let listen = |more: &str| format!("listen = [{{ address = \"127.0.0.1:1\", {more} }}]");
    let upstream = "upstream.db.servers = [\"tcp://b:1\"]";
    let mistakes = |more: &str| {
        parse(&format!("{}\n{upstream}", listen(more)), "f").map_err(|found| found[0].to_string())
    };
    assert!(mistakes("tcp = \"db\"").is_ok());
    let expected = "f:1:1: the file has no route; expected at least one [[route]]";
    assert_eq!(mistakes("name = \"web\"").err().as_deref(), Some(expected));
}

#[test]
fn a_rewrite_by_what_is_in_no_key_of_the_cache_is_warned_of() {
    let warnings = |rewrite: &str, cache: &str| {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:1\"\n[cache]\nmemory = \"64MiB\"\n[[route]]\nupstream = \"a\"\nrewrite = {rewrite}\n\
             {cache}\n[upstream.a]\nservers = [\"http://127.0.0.1:2\"]\n"
        );
        let reading = config::examine(&text, "f");
        assert!(reading.mistakes.is_empty(), "{text}: {:?}", reading.mistakes);
        reading.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let said = |what: &str| {
        vec![format!(
            "f:7:11: rewrite: {what} is not in the cache key, so one client gets responses stored for \
             another; "
        )]
    };
    for (rewrite, cache, expected, remedy) in [
        (
            "{ path = \"/$header.X-Group/x\" }",
            "cache = {}",
            "$header.X-Group",
            "name the field in cache.key_headers",
        ),
        ("{ host = \"$cookie.site\" }", "cache = {}", "$cookie.site", "name the cookie in cache.key_cookies"),
        ("{ path = \"/$client_address\" }", "cache = {}", "$client_address", "leave it out, or the cache"),
        (
            "{ path = \"/$cookie.a\" }",
            "cache = { key_cookies = [\"A\"] }",
            "$cookie.a",
            "name the cookie in cache.key_cookies",
        ),
    ] {
        let expected: Vec<String> = said(expected).iter().map(|line| format!("{line}{remedy}")).collect();
        assert_eq!(warnings(rewrite, cache), expected, "{rewrite} {cache}");
    }
    for (rewrite, cache) in [
        ("{ path = \"/$header.X-Group/x\" }", "cache = { key_headers = [\"x-group\"] }"),
        ("{ path = \"/$cookie.a\" }", "cache = { key_cookies = [\"a\"] }"),
        ("{ path = \"/$host$path\" }", "cache = {}"),
    ] {
        assert_eq!(warnings(rewrite, cache), Vec::<String>::new(), "{rewrite} {cache}");
    }
}
