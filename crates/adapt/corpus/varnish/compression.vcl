vcl 4.1;
# Texts are compressed once, when they are stored.

backend default { .host = "10.0.16.1"; .port = "80"; }

sub vcl_recv {
    if (req.url ~ "\.(zip|gz|mp4|webm)$") {
        unset req.http.Accept-Encoding;
        return (pass);
    }
}

sub vcl_backend_response {
    if (beresp.http.Content-Type ~ "text|javascript|json|svg") {
        set beresp.do_gzip = true;
    }
    unset beresp.http.Server;
    set beresp.http.X-Backend = beresp.backend.name;
}

sub vcl_deliver {
    unset resp.http.X-Backend;
    set resp.http.X-Frame-Options = "SAMEORIGIN";
}
