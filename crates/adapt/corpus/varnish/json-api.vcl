vcl 4.1;
# An interface: readers share, writers and keys do not.

backend api { .host = "10.0.10.1"; .port = "3000"; .max_connections = 200; }

sub vcl_recv {
    if (req.url !~ "^/api/") {
        return (synth(404, "Not Found"));
    }
    if (req.http.X-Api-Key) {
        return (pass);
    }
    if (req.method == "POST" && req.url ~ "^/api/search") {
        return (pass);
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (synth(405, "Method Not Allowed"));
    }
    unset req.http.Cookie;
    unset req.http.Accept-Encoding;
}

sub vcl_backend_response {
    if (bereq.url ~ "^/api/prices") {
        set beresp.ttl = 5s;
    } elseif (bereq.url ~ "^/api/catalog") {
        set beresp.ttl = 10m;
    } else {
        set beresp.ttl = 1m;
    }
}
