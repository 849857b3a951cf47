vcl 4.1;
# Requests are made alike, so that more of them meet.
import std;

backend default { .host = "10.0.5.1"; .port = "8080"; }

sub vcl_recv {
    set req.http.host = regsub(req.http.host, ":[0-9]+$", "");
    unset req.http.Proxy;
    if (req.url ~ "(\?|&)(utm_source|utm_medium|utm_campaign|gclid|fbclid)=") {
        set req.url = regsuball(req.url, "&(utm_source|utm_medium|utm_campaign|gclid|fbclid)=[^&]+", "");
        set req.url = regsuball(req.url, "\?(utm_source|utm_medium|utm_campaign|gclid|fbclid)=[^&]+", "?");
        set req.url = regsub(req.url, "\?&", "?");
        set req.url = regsub(req.url, "\?$", "");
    }
    if (req.url ~ "\#") {
        set req.url = regsub(req.url, "\#.*$", "");
    }
    if (req.http.Cookie) {
        set req.http.Cookie = regsuball(req.http.Cookie, "__utm.=[^;]+(; )?", "");
        set req.http.Cookie = regsuball(req.http.Cookie, "_ga[^=]*=[^;]+(; )?", "");
        if (req.http.Cookie ~ "^\s*$") {
            unset req.http.Cookie;
        }
    }
    if (req.url ~ "^[^?]*\.(css|js|jpg|png|svg|ico)(\?.*)?$") {
        unset req.http.Cookie;
        return (hash);
    }
}
