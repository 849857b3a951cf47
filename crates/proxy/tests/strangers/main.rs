//! Clients and servers that others have written: curl, Chromium and HAProxy in front, nginx behind, Redis beside. Where one is not installed its
//! tests are left out, but for CI, where it has to be.

/// Which programs there are.
mod installed;
/// A client.
mod curl;
/// A browser.
mod chromium;
/// A server.
mod nginx;
/// A proxy in front.
mod haproxy;
/// HTTP/1.1 in the clear on both sides.
mod clear;
/// TLS and HTTP/2, towards clients and towards servers.
mod secured;
/// Content coding.
mod coding;
/// Which other origins may read responses.
mod cors;
/// gRPC-Web from a browser.
mod grpc_web;
/// Who is let in by another server, as nginx does it.
mod forward_auth;
/// Unix sockets, PROXY headers, and connections that are passed on as they are.
mod edge;
/// Files.
mod files;
/// Sessions that instances share through Redis.
mod redis;
