//! Delayed requests and responses.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::scene::{ask, client, origin, proxy, read_head};

#[test]
fn requests_are_held_back_beside_each_other() {
    const CLIENTS: usize = 50;
    let proxy = proxy("delay = \"300ms±20ms\"", origin(10));
    let began = Instant::now();
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| client(&proxy)).collect();
    clients.iter_mut().for_each(ask);
    for client in &mut clients {
        read_head(client).expect("an answer");
        assert!(began.elapsed() >= Duration::from_millis(280), "{:?}", began.elapsed());
    }
    // Sequentially they would take at least this long.
    assert!(began.elapsed() < CLIENTS as u32 * Duration::from_millis(280), "{:?}", began.elapsed());
}
