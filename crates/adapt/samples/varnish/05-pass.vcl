vcl 4.1;

backend app {
    .host = "@IP@";
    .port = "@PORT@";
    .connect_timeout = 2s;
    .first_byte_timeout = 20s;
}

sub vcl_recv {
    if (req.method != "GET" && req.method != "HEAD" && req.method != "POST") {
        return (synth(405, "Not here"));
    }
    if (req.url ~ "^/(admin|private)/") {
        return (synth(403, "Closed"));
    }
    if (req.http.host == "a.example.com" || req.http.host ~ "\.b\.example\.com$") {
        set req.http.X-Tenant = "other";
        return (pass);
    }
    if (req.url ~ "^/docs/") {
        set req.url = regsub(req.url, "^/docs/", "/manual/");
    }
    unset req.http.X-Secret;
    return (pass);
}

sub vcl_deliver {
    set resp.http.X-Served-By = "edge";
    unset resp.http.X-Powered-By;
}
