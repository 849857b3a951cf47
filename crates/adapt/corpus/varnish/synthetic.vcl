vcl 4.1;
# Small pages from the configuration itself.

backend default { .host = "10.0.12.1"; .port = "80"; }

sub vcl_recv {
    if (req.url == "/varnish-ping") {
        return (synth(200, "OK"));
    }
    if (req.url == "/robots.txt") {
        return (synth(700, "robots"));
    }
    if (req.http.User-Agent ~ "(?i)(sqlmap|nikto|masscan)") {
        return (synth(403, "No"));
    }
}

sub vcl_synth {
    if (resp.status == 700) {
        set resp.status = 200;
        set resp.http.Content-Type = "text/plain";
        synthetic("User-agent: *");
        return (deliver);
    }
}
