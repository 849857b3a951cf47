vcl 4.1;
# Servers by host and path.

backend www { .host = "10.0.2.1"; .port = "80"; }
backend api { .host = "10.0.2.2"; .port = "8000"; }
backend images { .host = "10.0.2.3"; .port = "9000"; }

sub vcl_recv {
    if (req.http.host == "api.example.com") {
        set req.backend_hint = api;
        return (pass);
    }
    if (req.url ~ "^/images/") {
        set req.backend_hint = images;
        unset req.http.Cookie;
    } else {
        set req.backend_hint = www;
    }
    if (req.http.host ~ "^(www\.)?example\.com$") {
        set req.http.host = "example.com";
    }
}

sub vcl_backend_response {
    if (bereq.url ~ "^/images/") {
        set beresp.ttl = 1w;
    }
}

sub vcl_deliver {
    if (obj.hits > 0) {
        set resp.http.X-Cache = "HIT";
    } else {
        set resp.http.X-Cache = "MISS";
    }
}
