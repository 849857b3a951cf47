//! The memory in which a worker makes the records of FastCGI requests; borrowed for one request.

use std::cell::RefCell;

use http1::RequestHead;

#[derive(Default)]
pub(crate) struct RecordScratch(pub(crate) RefCell<RecordMemory>);

#[derive(Default)]
pub(crate) struct RecordMemory {
    /// The head that a server would get over HTTP/1.1.
    pub(crate) head: RequestHead,
    pub(crate) records: Vec<u8>,
}
