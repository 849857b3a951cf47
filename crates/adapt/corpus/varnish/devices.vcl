vcl 4.1;
# Telephones and desks get pages of their own.

backend default { .host = "10.0.7.1"; .port = "80"; }
backend mobile { .host = "10.0.7.2"; .port = "80"; }

sub detect {
    set req.http.X-Device = "desktop";
    if (req.http.User-Agent ~ "(?i)iphone|android.*mobile") {
        set req.http.X-Device = "phone";
    }
}

sub vcl_recv {
    unset req.http.X-Device;
    call detect;
    if (req.http.X-Device == "phone" && req.http.Cookie !~ "fullsite=1") {
        set req.backend_hint = mobile;
    }
    if (req.url ~ "^/(account|basket)") {
        return (pass);
    }
    unset req.http.Cookie;
}

sub vcl_hash {
    hash_data(req.http.X-Device);
}
