vcl 4.1;
# Old pages while the server is ill.
import std;

backend default {
    .host = "10.0.9.1";
    .port = "8080";
    .probe = { .url = "/alive"; .interval = 3s; .timeout = 1s; .window = 8; .threshold = 3; }
}

sub vcl_recv {
    if (std.healthy(req.backend_hint)) {
        set req.grace = 10s;
    }
    if (req.url ~ "^/live/") {
        return (pass);
    }
}

sub vcl_backend_response {
    set beresp.grace = 24h;
    if (beresp.status >= 500 && bereq.is_bgfetch) {
        return (abandon);
    }
    if (beresp.status == 404) {
        set beresp.ttl = 30s;
        set beresp.grace = 0s;
    }
}
