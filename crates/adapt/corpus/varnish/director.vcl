vcl 4.1;
# Two groups with a director each.
import directors;

backend a { .host = "10.0.3.1"; .port = "80"; }
backend b { .host = "10.0.3.2"; .port = "80"; }
backend c { .host = "10.0.3.3"; .port = "80"; }
backend d { .host = "10.0.3.4"; .port = "80"; }

sub vcl_init {
    new web = directors.round_robin();
    web.add_backend(a);
    web.add_backend(b);
    new spare = directors.fallback();
    spare.add_backend(c);
    spare.add_backend(d);
}

sub vcl_recv {
    if (req.url ~ "^/archive/") {
        set req.backend_hint = spare.backend();
    } else {
        set req.backend_hint = web.backend();
    }
    if (req.http.Authorization) {
        return (pass);
    }
}
