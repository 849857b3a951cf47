vcl 4.1;
# A page in several languages, stored for each.

backend default { .host = "10.0.6.1"; .port = "80"; }

sub vcl_recv {
    if (req.http.Accept-Language ~ "^de") {
        set req.http.X-Language = "de";
    } elseif (req.http.Accept-Language ~ "^fr") {
        set req.http.X-Language = "fr";
    } else {
        set req.http.X-Language = "en";
    }
    unset req.http.Cookie;
}

sub vcl_hash {
    hash_data(req.http.X-Language);
}

sub vcl_backend_response {
    set beresp.ttl = 10m;
}

sub vcl_deliver {
    set resp.http.Vary = "Accept-Language";
}
