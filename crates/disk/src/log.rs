//! The segments of the log: records are appended to the newest, and the oldest is given up when there is no more room.
//!
//! It writes only segments that it made itself in this process: what an earlier one left is read, never appended to.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::format::{
    Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, StoreId, payload_sum, segment_header,
};
use crate::index::{Index, Place, lock};

/// The log, as the thread that writes it has it.
#[derive(Debug)]
pub(crate) struct Log {
    folder: PathBuf,
    store: StoreId,
    size_bytes: u64,
    segment_bytes: u64,
    /// The bytes of each segment, the oldest first.
    segments: BTreeMap<u64, u64>,
    /// The one that is written, once something was.
    newest: Option<(u64, File)>,
    next_number: u64,
    is_synced: bool,
}

/// What was found when the log was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Findings {
    /// Segments that end in the middle of a record, or with something that is none.
    pub(crate) damaged: u64,
    /// Files that are not segments of this store.
    pub(crate) foreign: u64,
}

impl Log {
    /// Reads what an earlier process left.
    pub(crate) fn open(
        folder: &Path,
        store: StoreId,
        size_bytes: u64,
        segment_bytes: u64,
        index: &mut Index,
    ) -> io::Result<(Self, Findings)> {
        let mut findings = Findings::default();
        let mut log = Self {
            folder: folder.to_owned(),
            store,
            size_bytes,
            segment_bytes,
            segments: BTreeMap::new(),
            newest: None,
            next_number: 0,
            is_synced: true,
        };
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            match name.to_str().and_then(segment_number) {
                Some(number) => {
                    log.segments.insert(number, entry.metadata()?.len());
                }
                None if name == *crate::disk::IDENTITY => {}
                None => findings.foreign += 1,
            }
        }
        log.next_number = log.segments.last_key_value().map_or(0, |(&last, _)| last + 1);
        let numbers: Vec<u64> = log.segments.keys().copied().collect();
        for number in numbers {
            match log.scan(number, index)? {
                Scanned::Whole => {}
                Scanned::Damaged => findings.damaged += 1,
                Scanned::Foreign => {
                    // Not counted as its own, so that it is never deleted.
                    findings.foreign += 1;
                    log.segments.remove(&number);
                }
            }
        }
        log.make_room(0, index)?;
        Ok((log, findings))
    }

    /// Takes the records of a segment into the index, up to what is damaged. Payloads are checked when they are read.
    fn scan(&self, number: u64, index: &mut Index) -> io::Result<Scanned> {
        let file = File::open(self.path(number))?;
        let file_bytes = file.metadata()?.len();
        let mut header = [0; SEGMENT_HEADER_BYTES];
        if file_bytes < header.len() as u64 {
            return Ok(Scanned::Damaged);
        }
        file.read_exact_at(&mut header, 0)?;
        if header != segment_header(self.store, number) {
            return Ok(Scanned::Foreign);
        }
        let mut offset = SEGMENT_HEADER_BYTES as u64;
        while offset < file_bytes {
            let mut header = [0; RECORD_HEADER_BYTES];
            if offset + header.len() as u64 > file_bytes {
                return Ok(Scanned::Damaged);
            }
            file.read_exact_at(&mut header, offset)?;
            let Some(header) = RecordHeader::from_bytes(&header) else { return Ok(Scanned::Damaged) };
            let end = offset + RECORD_HEADER_BYTES as u64 + u64::from(header.payload_bytes);
            let (true, Ok(begin)) = (end <= file_bytes, u32::try_from(offset)) else {
                return Ok(Scanned::Damaged);
            };
            match header.kind {
                Kind::Put => {
                    let payload_bytes = header.payload_bytes;
                    index.put(header.key, Place { segment: number, offset: begin, payload_bytes });
                }
                Kind::Remove => {
                    index.remove(header.key);
                }
                Kind::Clear => index.clear(),
            }
            offset = end;
        }
        Ok(Scanned::Whole)
    }

    /// Appends a record, in one write. Says where it is.
    pub(crate) fn append(
        &mut self,
        kind: Kind,
        key: u128,
        parts: &[Bytes],
        index: &Mutex<Index>,
    ) -> io::Result<Place> {
        let payload_bytes: usize = parts.iter().map(Bytes::len).sum();
        let record_bytes = (RECORD_HEADER_BYTES + payload_bytes) as u64;
        self.make_room(record_bytes, &mut lock(index))?;
        let segment_is_full = self
            .newest
            .as_ref()
            .is_none_or(|(number, _)| self.segments[number] + record_bytes > self.segment_bytes);
        if segment_is_full {
            self.begin_segment()?;
        }
        let Some((number, file)) = &mut self.newest else { unreachable!("it was begun") };
        let payload_sum = payload_sum(key, parts.iter().map(|part| &part[..]));
        let header = RecordHeader { kind, key, payload_bytes: payload_bytes as u32, payload_sum };
        let mut record = Vec::with_capacity(record_bytes as usize);
        record.extend_from_slice(&header.to_bytes());
        parts.iter().for_each(|part| record.extend_from_slice(part));
        file.write_all(&record)?;
        self.is_synced = false;
        let Some(end) = self.segments.get_mut(number) else { unreachable!("it is written") };
        let offset = *end as u32;
        *end += record_bytes;
        Ok(Place { segment: *number, offset, payload_bytes: payload_bytes as u32 })
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        self.sync()?;
        let number = self.next_number;
        let mut file = OpenOptions::new().write(true).create_new(true).open(self.path(number))?;
        self.next_number += 1;
        self.segments.insert(number, SEGMENT_HEADER_BYTES as u64);
        file.write_all(&segment_header(self.store, number))?;
        self.newest = Some((number, file));
        Ok(())
    }

    /// Gives up the oldest segments until there is room for so much.
    fn make_room(&mut self, wanted_bytes: u64, index: &mut Index) -> io::Result<()> {
        let wanted_bytes = wanted_bytes + SEGMENT_HEADER_BYTES as u64;
        while self.segments.values().sum::<u64>() + wanted_bytes > self.size_bytes
            && let Some((number, _)) = self.segments.pop_first()
        {
            index.remove_segment(number);
            if self.newest.as_ref().is_some_and(|(newest, _)| *newest == number) {
                self.newest = None;
            }
            fs::remove_file(self.path(number))?;
        }
        Ok(())
    }

    /// Has the kernel write down what was appended.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if let (Some((_, file)), false) = (&self.newest, self.is_synced) {
            file.sync_data()?;
        }
        self.is_synced = true;
        Ok(())
    }

    /// What all segments take.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().sum()
    }

    fn path(&self, number: u64) -> PathBuf {
        segment_path(&self.folder, number)
    }
}

enum Scanned {
    Whole,
    /// Records up to some point are good.
    Damaged,
    Foreign,
}

fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:016x}.segment"))
}

fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".segment").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// What reading a record gave.
pub(crate) enum Read {
    Payload(Vec<u8>),
    /// It is not what was written there.
    Damaged,
}

/// Reads records, for the thread that reads.
#[derive(Debug)]
pub(crate) struct Records {
    folder: PathBuf,
    /// The segment read last.
    open: Option<(u64, Arc<File>)>,
}

impl Records {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), open: None }
    }

    /// Reads a record, and believes it only if all of it is as it was written.
    pub(crate) fn read(&mut self, key: u128, place: Place) -> io::Result<Read> {
        let file = match &self.open {
            Some((number, file)) if *number == place.segment => file.clone(),
            _ => {
                let file = Arc::new(File::open(segment_path(&self.folder, place.segment))?);
                self.open = Some((place.segment, file.clone()));
                file
            }
        };
        let mut header = [0; RECORD_HEADER_BYTES];
        let mut payload = vec![0; place.payload_bytes as usize];
        let begin = u64::from(place.offset);
        let read = file
            .read_exact_at(&mut header, begin)
            .and_then(|()| file.read_exact_at(&mut payload, begin + RECORD_HEADER_BYTES as u64));
        match read {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Read::Damaged),
            read => read?,
        }
        let is_right = RecordHeader::from_bytes(&header).is_some_and(|header| {
            header.kind == Kind::Put
                && header.key == key
                && header.payload_bytes == place.payload_bytes
                && header.payload_sum == payload_sum(key, std::iter::once(&payload[..]))
        });
        Ok(if is_right { Read::Payload(payload) } else { Read::Damaged })
    }
}
