//! What the proxy tells about itself: an access log that never makes a request wait, messages, counters, and their
//! exposition.
//!
//! Not here: what is a failure and which word it has in the log (the proxy decides), and any network: the exposition
//! is a text, whoever serves it.

/// One finished request, as the log sees it.
mod entry;
/// The time of a line, rendered once a second.
mod timestamp;
/// Bytes from outside made safe to stand in a line.
mod escape;
/// What of a query string is logged.
mod query;
/// An entry as a line: combined or JSON.
mod line;
/// From the workers' buffers to the thread that writes.
mod log;
/// The thread that writes, and what it says when it can't.
mod writer;
/// What the running program says on standard error.
pub mod message;
/// Integers that one worker owns and anyone may read.
mod counters;

/// How often something took how long.
mod histogram;
/// What a worker counts for each route, listener, upstream and server.
mod series;
/// Which name is counted where, over reloads.
mod directory;
/// What the system says of this process.
mod process;
/// Families and samples as text.
mod text;
/// All of it, as Prometheus reads it.
mod exposition;
/// What of it is said of a cache.
mod cached;

pub use cached::{CacheState, DiskState};
pub use counters::{CAUSES_MAX, Causes, Counter, Counters, Fields, Gauge, Kind, Reader, Row, Snapshot};
pub use directory::{Directory, NAMED_MAX, Names, Places, ServerName, Totals};
pub use entry::{ClientTls, Entry, Injected, Retried, Version};
pub use exposition::{Exposition, ServerHealthSample, ServerState};
pub use histogram::{BUCKETS, Histogram};
pub use line::Format;
pub use log::{AccessLog, Target, WorkerLog};
pub use process::Process;
pub use query::Query;
pub use series::{
    CacheCell, Classes, ListenerCell, Place, Rare, RouteCell, Series, SeriesReader, ServerCell, UpstreamCell,
};
pub use text::{Family, Label, Syntax, Text, Type};
