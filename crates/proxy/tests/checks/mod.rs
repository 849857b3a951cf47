//! Servers that go down and come back: checks of every kind and ejection, over real sockets. The test plays the
//! servers.
//!
//! Intervals are short, and tests wait for states; none depends on sleeping.

/// Servers at one port, and another port where they are checked.
mod scene;
/// The checked ports, by kind.
mod checked;
/// Servers that go down and come back.
mod kinds;
/// Requirements of checks on an answer.
mod expectations;
/// Checks across a configuration change.
mod reloads;
/// External commands.
mod commands;
/// Servers of later priorities.
mod backups;
/// Ejection of outliers.
mod ejection;
