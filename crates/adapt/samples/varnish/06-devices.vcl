vcl 4.1;

# Which kind of client it is decides in a field, and the field decides the rest.
backend web { .host = "@IP@"; .port = "@PORT@"; }
backend mobile { .host = "@IP@"; .port = "@PORT@"; }

sub detect {
    unset req.http.X-Tenant;
    if (req.http.User-Agent ~ "(?i)(iphone|android)" && req.url !~ "^/desktop/") {
        set req.http.X-Tenant = "mobile";
    } elsif (req.http.X-Odd == "1" || req.http.Cookie ~ "group=beta") {
        set req.http.X-Tenant = "beta";
    } else {
        set req.http.X-Tenant = "web";
    }
}

sub vcl_recv {
    call detect;
    if (req.http.X-Tenant == "mobile") {
        set req.backend_hint = mobile;
    } else {
        set req.backend_hint = web;
    }
    if (req.http.X-Tenant != "web" && req.url ~ "^/admin") {
        return (synth(403, "Forbidden"));
    }
    if (req.restarts == 0 && req.http.X-Tenant == "beta" && req.method != "GET") {
        return (synth(405, "Read only"));
    }
    return (pass);
}

sub vcl_deliver {
    if (req.url ~ "^/assets/" && req.http.X-Tenant == "mobile") {
        set resp.http.Cache-Control = "public, max-age=60";
    }
    set resp.http.X-Served-By = "edge";
}
