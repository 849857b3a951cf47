vcl 4.1;
# Pages for users without a session are kept.

backend web {
    .host = "web";
    .port = "80";
    .first_byte_timeout = 60s;
    .probe = {
        .url = "/health";
        .interval = 5s;
        .timeout = 2s;
        .window = 5;
        .threshold = 3;
    }
}

sub vcl_recv {
    if (req.url ~ "^/status\.php$" || req.url ~ "^/update\.php" || req.url ~ "^/admin" || req.url ~ "^/user" || req.url ~ "^/ajax/") {
        return (pass);
    }
    if (req.url ~ "^/cron\.php") {
        return (synth(403, "Forbidden"));
    }
    if (req.http.Cookie ~ "SESS[a-z0-9]+") {
        return (pass);
    }
    unset req.http.Cookie;
}

sub vcl_backend_response {
    if (beresp.status == 404 || beresp.status == 301) {
        set beresp.ttl = 10m;
    }
    set beresp.grace = 6h;
}

sub vcl_deliver {
    unset resp.http.X-Powered-By;
    unset resp.http.X-Generator;
    unset resp.http.Via;
}
