vcl 4.1;
import directors;

probe health {
    .url = "/health";
    .interval = 2s;
    .timeout = 1s;
    .window = 5;
    .threshold = 3;
    .initial = 3;
}

backend one { .host = "@IP@"; .port = "@PORT@"; .probe = health; }
backend two {
    .host = "@IP@";
    .port = "@PORT@";
    .max_connections = 50;
    .probe = { .url = "/health"; .expected_response = 200; .initial = 8; }
}

sub vcl_init {
    new pool = directors.round_robin();
    pool.add_backend(one);
    pool.add_backend(two);
}

sub vcl_recv {
    set req.backend_hint = pool.backend();
    call cookies;
}

sub cookies {
    unset req.http.Cookie;
}

sub vcl_backend_response {
    set beresp.ttl = 5m;
    set beresp.do_gzip = true;
}
