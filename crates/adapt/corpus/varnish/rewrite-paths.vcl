vcl 4.1;
# A folder of an old application becomes the root of a host.

backend legacy { .host = "10.0.14.1"; .port = "8080"; }
backend modern { .host = "10.0.14.2"; .port = "8080"; }

sub vcl_recv {
    if (req.http.host == "legacy.example.com") {
        set req.backend_hint = legacy;
        set req.url = regsub(req.url, "^/", "/app/");
        return (pass);
    }
    set req.backend_hint = modern;
    if (req.url ~ "^/v1/") {
        set req.url = regsub(req.url, "^/v1/", "/api/");
    }
    set req.http.X-Forwarded-Port = "80";
}

sub vcl_backend_fetch {
    unset bereq.http.X-Debug;
}
