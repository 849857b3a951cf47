vcl 4.1;
# The administration is for the office.

backend default { .host = "10.0.8.1"; .port = "80"; }

acl office {
    "192.0.2.0"/24;
    "198.51.100.9";
    ! "192.0.2.66";
}

acl monitors {
    "10.10.0.5";
}

sub vcl_recv {
    if (req.url ~ "^/admin(/|$)" && client.ip !~ office) {
        return (synth(403, "Forbidden"));
    }
    if (req.url == "/server-status" && client.ip !~ monitors) {
        return (synth(404, "Not Found"));
    }
    if (req.url ~ "\.(env|git|sql|bak)$") {
        return (synth(404, "Not Found"));
    }
    if (req.url ~ "^/admin") {
        return (pass);
    }
}
