vcl 4.0;
# A shop: its catalogue is kept, its cart is not.
import std;

backend shop {
    .host = "10.0.1.1";
    .port = "8080";
    .connect_timeout = 5s;
}

acl purge {
    "localhost";
    "10.0.1.0"/24;
}

sub vcl_recv {
    if (req.method == "PURGE") {
        if (!client.ip ~ purge) {
            return (synth(405, "This IP is not allowed to send PURGE"));
        }
        return (purge);
    }
    if (req.method != "GET" && req.method != "HEAD" && req.method != "PUT" && req.method != "POST" && req.method != "OPTIONS" && req.method != "DELETE") {
        return (pipe);
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.url ~ "/checkout" || req.url ~ "/customer") {
        return (pass);
    }
    set req.url = std.querysort(req.url);
    if (req.url ~ "^/(pub/)?(media|static)/") {
        unset req.http.Cookie;
        return (hash);
    }
    return (hash);
}

sub vcl_hash {
    hash_data(req.http.X-Store);
}

sub vcl_backend_response {
    set beresp.grace = 3d;
    if (beresp.http.Set-Cookie) {
        set beresp.uncacheable = true;
    }
}
