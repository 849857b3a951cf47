//! All tests of this crate are one program: a module for each subject.

/// The client of etcd.
mod client;
/// A part of etcd's JSON gateway.
mod fake_etcd;
/// Changes of maps that instances share.
mod maps;
