//! Translates containers of Docker and Podman with their labels into routes and upstreams of `vanward.toml`. A
//! remark reports each label that cannot be translated. No socket, clock or file: callers talk to the engine.

/// Containers, as the API of Docker and Podman tells them.
mod container;
/// Rules of Traefik, such as ``Host(`a.example`) && PathPrefix(`/api`)``.
mod rule;
/// Merges what containers ask for.
mod wanted;
/// Labels of Vanward.
mod own;
/// Labels of Traefik.
mod traefik;
/// Writes `vanward.toml`.
mod written;

pub use container::Container;
pub use wanted::{Fragment, Remark, translate};
