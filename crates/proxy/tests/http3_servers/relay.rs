//! Passes datagrams to a server whose address clients do not know; it can switch to another one, or to a closed port.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use testkit::ports::loopback;

/// A relay at a separate port. Dropping it closes the port.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    orders: Option<Sender<SocketAddr>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let front = UdpSocket::bind(loopback()).expect("a port is free");
        front.set_read_timeout(Some(Duration::from_millis(2))).expect("is a socket");
        let address = front.local_addr().expect("it is bound");
        let (orders, received) = channel();
        let thread = std::thread::spawn(move || relay(&front, server, &received));
        Self { address, orders: Some(orders), thread: Some(thread) }
    }

    /// Passes later datagrams to another server.
    pub(crate) fn switches_to(&self, server: SocketAddr) {
        self.orders.as_ref().expect("it runs").send(server).expect("it runs");
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.thread.take().expect("it runs").join().expect("it ends");
    }
}

fn relay(front: &UdpSocket, mut server: SocketAddr, orders: &Receiver<SocketAddr>) {
    let mut backs: HashMap<SocketAddr, UdpSocket> = HashMap::new();
    let mut buffer = [0; 65_536];
    loop {
        match orders.try_recv() {
            Ok(other) => {
                server = other;
                backs.clear();
            }
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        if let Ok((count, client)) = front.recv_from(&mut buffer) {
            let back = backs.entry(client).or_insert_with(|| {
                let back = UdpSocket::bind(loopback()).expect("a port is free");
                back.connect(server).expect("it is reachable");
                back.set_nonblocking(true).expect("is a socket");
                back
            });
            let _ = back.send(&buffer[..count]);
        }
        for (client, back) in &backs {
            while let Ok(count) = back.recv(&mut buffer) {
                let _ = front.send_to(&buffer[..count], client);
            }
        }
    }
}
