vcl 4.1;

import std;

backend app { .host = "@IP@"; .port = "@PORT@"; }

sub vcl_recv {
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.http.Authorization || req.http.Cookie ~ "(session|token)=") {
        return (pass);
    }
    if (req.url ~ "^/(static|assets|files)/" || req.url ~ "\.(png|js|css)(\?.*)?$") {
        unset req.http.Cookie;
        return (hash);
    }
    if (req.http.Cookie ~ "group=(beta|test)" && req.url !~ "^/api/") {
        set req.http.X-Site = "beta";
        return (pass);
    }
    unset req.http.Cookie;
}

sub vcl_hash {
    hash_data(req.url);
    hash_data(req.http.host);
    hash_data(req.http.X-Odd);
}

sub vcl_backend_response {
    if (beresp.http.Set-Cookie) {
        set beresp.uncacheable = true;
        return (deliver);
    }
    if (beresp.status == 404 || beresp.status == 410) {
        set beresp.ttl = 5s;
        return (deliver);
    }
    if (bereq.url ~ "^/api/" && bereq.http.X-Odd) {
        set beresp.ttl = 10s;
    } else {
        set beresp.ttl = 2m;
    }
}

sub vcl_deliver {
    if (req.url ~ "^/assets/") {
        set resp.http.Cache-Control = "public, max-age=60";
    }
    unset resp.http.X-Powered-By;
}
