vcl 4.1;

backend app { .host = "@IP@"; .port = "@PORT@"; }
backend legacy { .host = "@IP@"; .port = "@SECOND_PORT@"; }
backend dead { .host = "@IP@"; .port = "1"; }

sub vcl_recv {
    if (req.url ~ "^/private/") {
        set req.backend_hint = dead;
    }
    if (req.restarts > 0) {
        set req.backend_hint = legacy;
    }
    return (pass);
}

sub vcl_backend_error {
    if (bereq.retries == 0) {
        set bereq.backend = legacy;
        return (retry);
    }
}

sub vcl_deliver {
    if (resp.status == 404 && req.restarts == 0) {
        return (restart);
    }
    set resp.http.X-Served-By = "edge";
}
