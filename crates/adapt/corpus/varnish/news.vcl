vcl 4.1;
# A newspaper: the front page is fresh, archives are old.

backend press { .host = "10.0.11.1"; .port = "80"; }
backend comments { .host = "10.0.11.2"; .port = "8081"; }

sub vcl_recv {
    if (req.url ~ "^/comments/") {
        set req.backend_hint = comments;
        return (pass);
    }
    if (req.http.Cookie ~ "subscriber=") {
        return (pass);
    }
    unset req.http.Cookie;
}

sub vcl_backend_response {
    if (bereq.url == "/") {
        set beresp.ttl = 15s;
    } elseif (bereq.url ~ "^/archive/") {
        set beresp.ttl = 7d;
    } else {
        set beresp.ttl = 2m;
    }
    if (beresp.status >= 500) {
        set beresp.uncacheable = true;
        set beresp.ttl = 5s;
    }
}

sub vcl_deliver {
    set resp.http.X-Served-By = server.hostname;
}
