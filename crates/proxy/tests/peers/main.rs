//! Instances that share what they store, in one process: a server of the test counts what reaches it.

/// Instances, and the server behind them.
mod fleet;
/// One request to the server for all instances.
mod shared;
/// What goes to the server at once.
mod straight;
/// Instances that are gone, silent, or disagree.
mod lost;
/// What is kept where it is asked for often.
mod hot;
/// Who is let in.
mod refused;
/// Traces and metrics of what two instances do for one request.
mod told;
