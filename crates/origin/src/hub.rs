//! State that all workers share: rooms, whose clients get each other's messages, and the capacity for requests.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, broadcast};
use tokio::task::spawn_local;

/// Messages that wait for the slowest client of a room; it then loses the oldest.
const WAITING_MAX: usize = 4096;
const ROOMS_MAX: usize = 1024;

/// A message, with the number of the client that sent it.
pub(crate) type Said = (u64, Bytes);

#[derive(Debug, Default)]
pub(crate) struct Hub {
    rooms: Mutex<HubState>,
    /// Requests that may be processed at once; `None` for no limit.
    capacity: Option<Arc<Semaphore>>,
}

#[derive(Debug, Default)]
struct HubState {
    clients: u64,
    rooms: HashMap<String, broadcast::Sender<Said>>,
}

pub(crate) struct Seat {
    pub(crate) number: u64,
    pub(crate) sender: broadcast::Sender<Said>,
    pub(crate) receiver: broadcast::Receiver<Said>,
}

impl Hub {
    pub(crate) fn new(capacity: Option<NonZeroUsize>) -> Self {
        let capacity = capacity.map(|most| Arc::new(Semaphore::new(most.get())));
        Self { capacity, ..Self::default() }
    }

    /// Spends a request's processing time. With a capacity, it first waits for its turn. The time passes even if the
    /// client has gone, as in a server that notices this only when it writes the response.
    pub(crate) async fn work(&self, time: Duration) {
        let Some(capacity) = self.capacity.clone() else { return tokio::time::sleep(time).await };
        let done = spawn_local(async move {
            let _turn = capacity.acquire().await;
            tokio::time::sleep(time).await;
        });
        // The task is not aborted, so there is no error.
        let _ = done.await;
    }

    /// Enters a room. `None` if there are too many.
    pub(crate) fn enter(&self, room: &str) -> Option<Seat> {
        let mut state = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.rooms.contains_key(room) {
            state.rooms.retain(|_, sender| sender.receiver_count() > 0);
            if state.rooms.len() >= ROOMS_MAX {
                return None;
            }
        }
        state.clients += 1;
        let number = state.clients;
        let sender = state.rooms.entry(room.to_owned()).or_insert_with(|| broadcast::channel(WAITING_MAX).0);
        Some(Seat { number, sender: sender.clone(), receiver: sender.subscribe() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_reaches_those_in_the_room_and_empty_rooms_are_forgotten() {
        let hub = Hub::default();
        let (one, mut other) = (hub.enter("a").expect("a room"), hub.enter("a").expect("the same"));
        let mut elsewhere = hub.enter("b").expect("another");
        one.sender.send((one.number, Bytes::from_static(b"hi"))).expect("heard");
        assert_eq!(other.receiver.try_recv(), Ok((one.number, Bytes::from_static(b"hi"))));
        assert!(elsewhere.receiver.try_recv().is_err());
        let kept: Vec<Seat> = (2..ROOMS_MAX).filter_map(|room| hub.enter(&room.to_string())).collect();
        assert_eq!(kept.len(), ROOMS_MAX - 2);
        assert!(hub.enter("one too many").is_none());
        drop(kept);
        assert!(hub.enter("one too many").is_some());
    }
}
