vcl 4.1;
# Sockets are piped; everything else is a site.

backend site { .host = "10.0.15.1"; .port = "80"; }
backend sockets { .host = "10.0.15.2"; .port = "9000"; }

sub vcl_recv {
    if (req.http.Upgrade ~ "(?i)websocket") {
        set req.backend_hint = sockets;
        return (pipe);
    }
    if (req.url ~ "^/socket.io/") {
        set req.backend_hint = sockets;
        return (pass);
    }
    if (req.url ~ "^/static/") {
        unset req.http.Cookie;
        return (hash);
    }
    return (pass);
}

sub vcl_pipe {
    if (req.http.upgrade) {
        set bereq.http.upgrade = req.http.upgrade;
        set bereq.http.connection = req.http.connection;
    }
}
