//! Sockets of listeners, shared out to workers.

use proxy::context::listening::ListenerId;
use proxy::context::worker::ListeningSocket;
use telemetry::WorkerLog;

/// The sockets of a listener, at least one for each worker.
pub(crate) type Sockets = (ListenerId, Vec<ListeningSocket>);

/// The initial state of a worker.
pub(crate) struct Beginning {
    pub(crate) listeners: Vec<ListenerId>,
    pub(crate) opened: Vec<(ListenerId, ListeningSocket)>,
    pub(crate) log: Option<WorkerLog>,
}

/// Shares sockets out: each worker gets one of each listener, and more where a process with more workers has passed more
/// on.
pub(crate) fn deal(opened: Vec<Sockets>, workers: usize) -> Vec<Vec<(ListenerId, ListeningSocket)>> {
    let mut dealt: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    for (id, sockets) in opened {
        for (index, socket) in sockets.into_iter().enumerate() {
            dealt[index % workers].push((id, socket));
        }
    }
    dealt
}
