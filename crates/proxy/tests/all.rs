//! Tests of the proxy over real sockets, in one program. Tests that count memory or change limits of the process are
//! separate programs.

/// HTTP/1, byte for byte: the client, the server, and the proxy between.
mod conversations;
/// HTTP/2, on either side.
mod http2;
/// HTTP/3 from clients.
mod http3;
/// HTTP/3 to servers.
mod http3_servers;
/// Applications behind FastCGI.
mod fastcgi;
/// TLS on either side.
mod tls;
/// Unix sockets, the PROXY protocol, and layer 4.
mod edge;
/// Policies of routes: requirements and edits.
mod policies;
/// Requests that the proxy itself sends.
mod asking;
/// The cache.
mod cache;
/// Instances that share a cache.
mod peers;
/// Content codings.
mod coding;
/// Files.
mod files;
/// Health checks and ejection.
mod checks;
/// Servers that are killed and restarted.
mod restarts;
/// Slow networks.
mod shaping;
/// Injected faults.
mod faults;
/// A log word, a status and a detail for each failure.
mod causes;
/// Metrics.
mod metrics;
/// Traces.
mod traces;
/// The example of a front door.
mod front_door;
/// Clients and servers by other projects.
mod strangers;
