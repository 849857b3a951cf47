//! The log of segments: records are appended to the newest segment, and the oldest is deleted to make room.
//!
//! A process appends only to segments that it created; it only reads those of earlier processes.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;

use crate::format::{
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, StoreId, payload_sum, segment_header,
};
use crate::index::{Index, RecordLocation, lock};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenRecord {
    /// Run number of the process that wrote the record; later processes have greater numbers.
    pub run: u32,
    pub payload: Vec<u8>,
}

/// Used by the writing thread.
#[derive(Debug)]
pub(crate) struct DiskLog {
    folder: PathBuf,
    store: StoreId,
    size_bytes: u64,
    segment_bytes: u64,
    /// The size of each segment, the oldest first.
    segments: BTreeMap<u64, u64>,
    /// The segment that is being written; `None` before the first record.
    newest: Option<(u64, File)>,
    next_number: u64,
    /// Run number of this process, counted from the first one that owned the store.
    run: u32,
    is_synced: bool,
}

/// The result of reading an earlier process's segments.
#[derive(Debug, Default)]
pub(crate) struct SegmentFindings {
    pub(crate) index: Index,
    /// In the order in which they were written.
    pub(crate) notes: Vec<WrittenRecord>,
    /// Keys of records for which the index had no room: they must be removed.
    pub(crate) outdated: Vec<u128>,
    /// Segments that end within a record, or contain invalid data.
    pub(crate) damaged: u64,
    /// Files that are not segments of this store.
    pub(crate) foreign: u64,
}

impl DiskLog {
    pub(crate) fn open(
        folder: &Path,
        store: StoreId,
        size_bytes: u64,
        segment_bytes: u64,
    ) -> io::Result<(Self, SegmentFindings)> {
        let mut findings = SegmentFindings::default();
        let mut log = Self {
            folder: folder.to_owned(),
            store,
            size_bytes,
            segment_bytes,
            segments: BTreeMap::new(),
            newest: None,
            next_number: 0,
            run: 0,
            is_synced: true,
        };
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            match name.to_str().and_then(segment_number) {
                Some(number) => {
                    log.segments.insert(number, entry.metadata()?.len());
                }
                None if name == *crate::identity::IDENTITY => {}
                None => findings.foreign += 1,
            }
        }
        log.next_number = log.segments.last_key_value().map_or(0, |(&last, _)| last + 1);
        let numbers: Vec<u64> = log.segments.keys().copied().collect();
        for number in numbers {
            match log.scan(number, &mut findings)? {
                Scanned::Whole => {}
                Scanned::CutOff => findings.damaged += 1,
                Scanned::Damaged => {
                    findings.damaged += 1;
                    findings.forget();
                }
                Scanned::Foreign => {
                    // Not counted as a segment of this store, so that it is never deleted.
                    findings.foreign += 1;
                    log.segments.remove(&number);
                }
            }
        }
        log.run += 1;
        let index = Mutex::new(std::mem::take(&mut findings.index));
        log.make_room(0, &index)?;
        findings.index = index.into_inner().unwrap_or_default();
        Ok((log, findings))
    }

    /// Indexes the records of a segment up to the first damage. Payloads except notes are checked when they are read.
    fn scan(&mut self, number: u64, findings: &mut SegmentFindings) -> io::Result<Scanned> {
        let file = File::open(self.path(number))?;
        let file_bytes = file.metadata()?.len();
        let mut header = [0; SEGMENT_HEADER_BYTES];
        if file_bytes < header.len() as u64 {
            return Ok(Scanned::CutOff);
        }
        file.read_exact_at(&mut header, 0)?;
        if header != segment_header(self.store, number) {
            return Ok(Scanned::Foreign);
        }
        let mut offset = SEGMENT_HEADER_BYTES as u64;
        while offset < file_bytes {
            let mut bytes = [0; RECORD_HEADER_BYTES];
            if offset + bytes.len() as u64 > file_bytes {
                return Ok(Scanned::CutOff);
            }
            file.read_exact_at(&mut bytes, offset)?;
            let Some(header) = RecordHeader::from_bytes(&bytes) else {
                // A file that grew before a crash may end with zeros, because its data was not written.
                let is_void = bytes.iter().all(|&byte| byte == 0);
                return Ok(if is_void { Scanned::CutOff } else { Scanned::Damaged });
            };
            let end = offset + RECORD_HEADER_BYTES as u64 + u64::from(header.payload_bytes);
            let (true, Ok(begin)) = (end <= file_bytes, u32::try_from(offset)) else {
                return Ok(Scanned::CutOff);
            };
            let place =
                RecordLocation { segment: number, offset: begin, payload_bytes: header.payload_bytes };
            self.run = self.run.max(header.run);
            match header.kind {
                RecordKind::Put => {
                    if !findings.index.put(header.key, header.variant, place) {
                        findings.outdated.push(header.key);
                    }
                }
                RecordKind::Remove => {
                    findings.index.remove(header.key);
                }
                RecordKind::Clear => findings.forget(),
                RecordKind::Note => match read_at(&file, RecordKind::Note, header.key, place)? {
                    RecordRead::Payload(written) => findings.notes.push(written),
                    RecordRead::Damaged => {
                        findings.damaged += 1;
                        findings.forget();
                    }
                },
            }
            offset = end;
        }
        Ok(Scanned::Whole)
    }

    /// Appends a record, in one write. Returns its location.
    pub(crate) fn append(
        &mut self,
        kind: RecordKind,
        (key, variant): (u128, u64),
        parts: &[Bytes],
        index: &Mutex<Index>,
    ) -> io::Result<RecordLocation> {
        let payload_bytes: usize = parts.iter().map(Bytes::len).sum();
        let record_bytes = (RECORD_HEADER_BYTES + payload_bytes) as u64;
        self.make_room(record_bytes, index)?;
        let segment_is_full = self
            .newest
            .as_ref()
            .is_none_or(|(number, _)| self.segments[number] + record_bytes > self.segment_bytes);
        if segment_is_full {
            self.begin_segment()?;
        }
        let Some((number, file)) = &mut self.newest else { unreachable!("it was begun") };
        let payload_sum = payload_sum(key, parts.iter().map(|part| &part[..]));
        let (run, payload_bytes) = (self.run, payload_bytes as u32);
        let header = RecordHeader { kind, key, variant, run, payload_bytes, payload_sum };
        let mut record = Vec::with_capacity(record_bytes as usize);
        record.extend_from_slice(&header.to_bytes());
        parts.iter().for_each(|part| record.extend_from_slice(part));
        file.write_all(&record)?;
        self.is_synced = false;
        let Some(end) = self.segments.get_mut(number) else { unreachable!("it is written") };
        let offset = *end as u32;
        *end += record_bytes;
        Ok(RecordLocation { segment: *number, offset, payload_bytes })
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

    /// Deletes the oldest segments until there is room for this many bytes.
    fn make_room(&mut self, wanted_bytes: u64, index: &Mutex<Index>) -> io::Result<()> {
        let wanted_bytes = wanted_bytes + SEGMENT_HEADER_BYTES as u64;
        while self.segments.values().sum::<u64>() + wanted_bytes > self.size_bytes
            && let Some((number, _)) = self.segments.pop_first()
        {
            while !lock(index).remove_some(number) {}
            if self.newest.as_ref().is_some_and(|(newest, _)| *newest == number) {
                self.newest = None;
            }
            fs::remove_file(self.path(number))?;
        }
        Ok(())
    }

    /// Flushes appended records to the disk (fdatasync).
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if let (Some((_, file)), false) = (&self.newest, self.is_synced) {
            file.sync_data()?;
        }
        self.is_synced = true;
        Ok(())
    }

    pub(crate) fn run(&self) -> u32 {
        self.run
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().sum()
    }

    fn path(&self, number: u64) -> PathBuf {
        segment_path(&self.folder, number)
    }
}

impl SegmentFindings {
    /// Forgets everything read so far, because unreadable data may have been a removal: a removed key must not return.
    fn forget(&mut self) {
        self.index = Index::default();
        self.notes.clear();
    }
}

enum Scanned {
    Whole,
    /// The segment ends where its process was killed.
    CutOff,
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

/// Deletes the segments of a store, and no other file in the folder.
pub(crate) fn empty(folder: &Path, store: StoreId) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let Some(number) = entry?.file_name().to_str().and_then(segment_number) else { continue };
        let path = segment_path(folder, number);
        let mut header = [0; SEGMENT_HEADER_BYTES];
        let read = File::open(&path).and_then(|file| file.read_exact_at(&mut header, 0));
        if read.is_ok() && header == segment_header(store, number) {
            fs::remove_file(path)?;
        }
    }
    // After a crash the segments must not reappear.
    File::open(folder)?.sync_all()
}

pub(crate) enum RecordRead {
    Payload(WrittenRecord),
    Damaged,
}

/// Used by the reading thread.
#[derive(Debug)]
pub(crate) struct Records {
    folder: PathBuf,
    /// The segment that was read last.
    open: Option<(u64, File)>,
}

impl Records {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), open: None }
    }

    /// Reads the record of a key, and verifies its checksums.
    pub(crate) fn read(&mut self, key: u128, place: RecordLocation) -> io::Result<RecordRead> {
        let open = match self.open.take() {
            Some((number, file)) if number == place.segment => (number, file),
            _ => (place.segment, File::open(segment_path(&self.folder, place.segment))?),
        };
        let (_, file) = self.open.insert(open);
        read_at(file, RecordKind::Put, key, place)
    }
}

fn read_at(file: &File, kind: RecordKind, key: u128, place: RecordLocation) -> io::Result<RecordRead> {
    let mut header = [0; RECORD_HEADER_BYTES];
    let mut payload = vec![0; place.payload_bytes as usize];
    let begin = u64::from(place.offset);
    let read = file
        .read_exact_at(&mut header, begin)
        .and_then(|()| file.read_exact_at(&mut payload, begin + RECORD_HEADER_BYTES as u64));
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(RecordRead::Damaged),
        read => read?,
    }
    let header = RecordHeader::from_bytes(&header).filter(|header| {
        header.kind == kind
            && header.key == key
            && header.payload_bytes == place.payload_bytes
            && header.payload_sum == payload_sum(key, std::iter::once(&payload[..]))
    });
    Ok(header.map_or(RecordRead::Damaged, |header| {
        RecordRead::Payload(WrittenRecord { run: header.run, payload })
    }))
}
