vcl 4.1;

# Testers and clients of the office have stored pages of their own.
backend default {
    .host = "@IP@";
    .port = "@PORT@";
}

acl office {
    "10.0.0.0"/8;
    "192.0.2.1";
}

sub vcl_recv {
    if (req.http.Cookie ~ "group=beta") {
        set req.http.X-Site = "beta";
    } else {
        unset req.http.X-Site;
    }
    if (client.ip ~ office) {
        set req.http.X-Tenant = "office";
    } else {
        set req.http.X-Tenant = "public";
    }
    unset req.http.Cookie;
}

sub vcl_hash {
    hash_data(req.http.X-Site);
    hash_data(req.http.X-Tenant);
    if (req.http.X-Odd) {
        hash_data("odd");
    }
    if (req.url ~ "^/images/") {
        hash_data(req.http.X-Secret);
    }
}

sub vcl_backend_fetch {
    set bereq.http.X-Real-IP = "cache";
}

sub vcl_backend_response {
    set beresp.ttl = 1h;
    unset beresp.http.Set-Cookie;
}
