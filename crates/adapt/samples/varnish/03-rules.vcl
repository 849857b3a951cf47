vcl 4.0;

backend web { .host = "@IP@"; .port = "@PORT@"; }
backend shop { .host = "@IP@"; .port = "@PORT@"; }

acl purgers {
    "localhost";
    "10.0.0.0"/8;
}

acl inside { "10.0.0.0"/8; }

sub vcl_recv {
    if (req.method == "PURGE") {
        if (!client.ip ~ purgers) {
            return (synth(405, "Not allowed"));
        }
        return (purge);
    }
    if (req.url == "/old") {
        return (synth(750, "https://www.example.com/new"));
    }
    if (req.url ~ "^/inside/" && !client.ip ~ inside) {
        return (synth(403, "Forbidden"));
    }
    if (req.http.User-Agent ~ "(?i)sqlmap") {
        return (synth(403, "Forbidden"));
    }
    if (req.http.host ~ "^shop") {
        set req.backend_hint = shop;
        set req.http.X-Site = "shop";
    } else {
        set req.http.X-Site = "web";
    }
    if (req.url ~ "^/api/") {
        set req.url = regsub(req.url, "^/api", "/v1");
        return (pass);
    }
    unset req.http.X-Secret;
    return (pass);
}

sub vcl_synth {
    if (resp.status == 750) {
        set resp.http.Location = resp.reason;
        set resp.status = 301;
        return (deliver);
    }
}
