//! Applications behind FastCGI, played by the test.

/// A proxy with an application behind it.
mod application;
/// Requests as applications get them.
mod requests;
/// Responses of applications.
mod responses;
/// Applications that break off or break rules.
mod broken;
/// Scripts of paths.
mod scripts;
/// Files beside the scripts.
mod files_first;
/// Kept connections, retries and health checks.
mod pool;
/// Clients of HTTP/3.
mod http3;
/// Policies of the route on top.
mod policies;
