vcl 4.1;

import std;

backend default {
    .host = "@IP@";
    .port = "@PORT@";
    .connect_timeout = 2s;
    .first_byte_timeout = 30s;
}

sub vcl_recv {
    # The administration is never stored.
    if (req.url ~ "^/admin" || req.url ~ "^/login") {
        return (pass);
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.url ~ "\.(png|js|css)$") {
        unset req.http.Cookie;
        return (hash);
    }
}

sub vcl_backend_response {
    if (bereq.url ~ "\.(png|js|css)$") {
        unset beresp.http.Set-Cookie;
        set beresp.ttl = 1h;
    }
    if (beresp.status == 404) {
        set beresp.ttl = 10s;
    }
    set beresp.grace = 6h;
}

sub vcl_deliver {
    unset resp.http.X-Powered-By;
    unset resp.http.Via;
    set resp.http.X-Site = "varnish";
    if (obj.hits > 0) {
        set resp.http.X-Cache = "HIT";
    } else {
        set resp.http.X-Cache = "MISS";
    }
}
