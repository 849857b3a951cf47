vcl 4.1;

backend app { .host = "@IP@"; .port = "@PORT@"; }
backend legacy { .host = "@IP@"; .port = "@SECOND_PORT@"; }

sub vcl_recv {
    if (req.restarts > 0) {
        set req.backend_hint = legacy;
        return (pass);
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    unset req.http.Cookie;
    return (hash);
}

sub vcl_deliver {
    if (req.restarts == 0 && (resp.status == 404 || resp.status == 410)) {
        return (restart);
    }
}
