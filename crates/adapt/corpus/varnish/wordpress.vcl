vcl 4.1;
# A blog: cookies of its users go around the cache.

backend default {
    .host = "10.0.0.1";
    .port = "8080";
}

acl purgers {
    "127.0.0.1";
    "10.0.0.0"/24;
}

sub vcl_recv {
    if (req.method == "PURGE") {
        if (client.ip !~ purgers) {
            return (synth(405, "Not allowed"));
        }
        return (purge);
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.url ~ "wp-(login|admin)" || req.url ~ "preview=true" || req.url ~ "xmlrpc.php") {
        return (pass);
    }
    if (req.http.Cookie ~ "wordpress_logged_in_|comment_author_|wp-postpass_") {
        return (pass);
    }
    unset req.http.Cookie;
    return (hash);
}

sub vcl_backend_response {
    if (bereq.url ~ "\.(css|js|png|jpg|gif|woff2)$") {
        unset beresp.http.Set-Cookie;
        set beresp.ttl = 1d;
    }
    set beresp.grace = 1h;
}
