//! Clients and servers of other projects: curl, Chromium and HAProxy in front, nginx and php-fpm behind, Redis beside.
//! Tests are skipped if a program is not installed, except in CI, where all are required.

/// Look-up of installed programs.
mod installed;
/// A client.
mod curl;
/// A browser.
mod chromium;
/// A server.
mod nginx;
/// A proxy in front.
mod haproxy;
/// HTTP/1.1 without TLS on both sides.
mod clear;
/// TLS and HTTP/2, with clients and servers.
mod secured;
/// Content coding.
mod coding;
/// CORS.
mod cors;
/// gRPC-Web from a browser.
mod grpc_web;
/// Forward authentication, compared with nginx.
mod forward_auth;
/// Unix sockets, PROXY headers, and layer 4.
mod edge;
/// Files.
mod files;
/// Sessions that instances share through Redis.
mod redis;
/// An application behind FastCGI.
mod php_fpm;
