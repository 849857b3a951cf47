vcl 4.1;
# One name, one scheme, by synthetic responses.

backend default { .host = "10.0.4.1"; .port = "80"; }

sub vcl_recv {
    if (req.http.host == "www.example.org") {
        return (synth(750, "https://example.org"));
    }
    if (req.url == "/old") {
        return (synth(751, "/new"));
    }
    if (req.http.X-Forwarded-Proto == "http") {
        return (synth(752, ""));
    }
}

sub vcl_synth {
    if (resp.status == 750) {
        set resp.http.Location = resp.reason + req.url;
        set resp.status = 301;
        return (deliver);
    }
    if (resp.status == 751) {
        set resp.http.Location = resp.reason;
        set resp.status = 302;
        return (deliver);
    }
    if (resp.status == 752) {
        set resp.http.Location = "https://" + req.http.host + req.url;
        set resp.status = 301;
        return (deliver);
    }
}
