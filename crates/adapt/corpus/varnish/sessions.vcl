vcl 4.1;
# A cookie named session is private; other cookies do not matter.

backend app { .host = "10.0.13.1"; .port = "8000"; }

sub vcl_recv {
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.http.Cookie ~ "(^|;\s*)session=") {
        return (pass);
    }
    if (req.http.Authorization) {
        return (pass);
    }
    unset req.http.Cookie;
    return (hash);
}

sub vcl_backend_response {
    if (beresp.http.Set-Cookie ~ "session=") {
        set beresp.uncacheable = true;
        return (deliver);
    }
    if (beresp.ttl <= 0s) {
        set beresp.ttl = 120s;
        set beresp.uncacheable = true;
    }
}
