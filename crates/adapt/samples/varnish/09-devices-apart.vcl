vcl 4.1;

# Pages for phones and desktops are stored apart. The server gets the kind of device, not the User-Agent.
backend default {
    .host = "@IP@";
    .port = "@PORT@";
}

sub vcl_recv {
    set req.http.X-Tenant = "desktop";
    if (req.http.User-Agent ~ "(?i)(mobile|iphone|android)") {
        set req.http.X-Tenant = "mobile";
    } elseif (req.http.User-Agent ~ "(?i)bot") {
        set req.http.X-Tenant = "bot";
    }
    unset req.http.User-Agent;
    if (req.url ~ "^/(api|private)/") {
        return (pass);
    }
    unset req.http.Cookie;
    return (hash);
}

sub vcl_hash {
    hash_data(req.url);
    hash_data(req.http.host);
    hash_data(req.http.X-Tenant);
    return (lookup);
}
