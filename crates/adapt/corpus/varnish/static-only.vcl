vcl 4.1;
# Files of a bucket; nothing but reading.

backend bucket {
    .host = "bucket.storage.example.net";
    .port = "80";
    .host_header = "bucket.storage.example.net";
}

sub vcl_recv {
    if (req.method != "GET" && req.method != "HEAD" && req.method != "OPTIONS") {
        return (synth(405, "Method Not Allowed"));
    }
    unset req.http.Cookie;
    unset req.http.Authorization;
    set req.http.host = "bucket.storage.example.net";
}

sub vcl_backend_response {
    unset beresp.http.Set-Cookie;
    unset beresp.http.x-amz-request-id;
    set beresp.ttl = 30d;
    set beresp.http.Cache-Control = "public, max-age=2592000";
}

sub vcl_deliver {
    set resp.http.Access-Control-Allow-Origin = "*";
    unset resp.http.X-Varnish;
}
