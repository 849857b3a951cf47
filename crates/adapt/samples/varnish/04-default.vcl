vcl 4.1;

backend default {
    .host = "@IP@";
    .port = "@PORT@";
}
