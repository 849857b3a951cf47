//! The product: a reverse proxy, one thread a core.
