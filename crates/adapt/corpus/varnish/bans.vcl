vcl 4.1;
# Editors throw pages away by expression.

backend cms { .host = "10.0.17.1"; .port = "80"; }

acl editors { "10.17.0.0"/16; "127.0.0.1"; }

sub vcl_recv {
    if (req.method == "BAN") {
        if (client.ip !~ editors) {
            return (synth(403, "Forbidden"));
        }
        ban("req.url ~ " + req.url);
        return (synth(200, "Ban added"));
    }
    if (req.url ~ "^/preview/" && client.ip !~ editors) {
        return (synth(403, "Forbidden"));
    }
    if (req.url ~ "^/(preview|edit)/") {
        return (pass);
    }
    unset req.http.Cookie;
}

sub vcl_backend_response {
    set beresp.http.X-Url = bereq.url;
    set beresp.ttl = 1h;
}

sub vcl_deliver {
    unset resp.http.X-Url;
}
