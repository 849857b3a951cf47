vcl 4.1;

backend app { .host = "@IP@"; .port = "@PORT@"; }

acl office {
    "localhost";
    "192.168.0.0"/16;
    ! "192.168.7.0"/24;
}

acl banned { "10.0.0.0"/8; "203.0.113.9"; }

sub vcl_recv {
    if (client.ip ~ banned || (req.http.X-Real-IP ~ "^203\." && client.ip !~ office)) {
        return (synth(403, "Forbidden"));
    }
    if (req.method !~ "^(GET|HEAD|POST|OPTIONS)$") {
        return (synth(405, "Method"));
    }
    if (req.url ~ "[?&]path=" && !req.http.X-Secret) {
        return (synth(400, "Bad request"));
    }
    if (req.http.host !~ "example\.com\.?(:[0-9]+)?$" && req.http.host != "127.0.0.1") {
        return (synth(404, "No such site"));
    }
    if (req.url ~ "^/(admin|private)/" && (client.ip !~ office || req.http.X-Secret != "mine")) {
        return (synth(401, "Who are you"));
    }
    if (req.http.User-Agent ~ "sqlmap" || req.http.X-Forbidden || req.http.X-Odd ~ "^2$") {
        set req.http.X-Site = "odd";
    } elsif (req.http.host ~ "^shop" && req.method == "GET") {
        set req.http.X-Site = "shop";
    }
    unset req.http.X-Secret;
    return (pass);
}
