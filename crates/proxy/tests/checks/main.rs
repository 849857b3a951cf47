//! Servers that go down and come back: checks of every kind and ejection, over real sockets. The test plays the servers.
//!
//! Intervals are short, and what they lead to is waited for; nothing sleeps to be right.

/// Two servers at one port, and another port where they are checked.
mod scene;
/// What answers checks, by their kind.
mod checked;
/// Down is noticed, and back.
mod kinds;
/// What checks expect of an answer.
mod expectations;
/// Checks over a change of the configuration.
mod reloads;
/// External commands.
mod commands;
/// Servers that are worse than the others.
mod ejection;
