//! Servers that others know of, as `vanward.toml`: containers of Docker and Podman with their labels in, routes and upstreams out,
//! and a remark about each label that cannot be taken over. No socket, clock or file: who asks whom is decided above.

/// Containers, as the API of Docker and Podman tells them.
mod container;
/// Rules of Traefik, such as ``Host(`a.example`) && PathPrefix(`/api`)``.
mod rule;
/// Routes and servers that containers ask for.
mod wanted;
/// Labels of Vanward.
mod own;
/// Labels of Traefik.
mod traefik;
/// Writes `vanward.toml`.
mod written;

pub use container::Container;
pub use wanted::{Fragment, Remark, translate};
