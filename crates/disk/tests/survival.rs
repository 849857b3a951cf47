//! The state of a store after kill -9 during writes, after damage, and after its folder disappears.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use disk::{Disk, DiskSettings, DiskStanding, WrittenRecord};

/// Serializes the tests, because a process that another test is starting still holds inherited locks of files.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn settings(path: &Path) -> DiskSettings {
    DiskSettings { path: path.to_owned(), size_bytes: 8 << 20, fresh_secret: 1 }
}

/// Opens a store, and waits until it is on.
fn open(path: &Path) -> Disk {
    open_noted(path).0
}

/// Also returns the notes.
fn open_noted(path: &Path) -> (Disk, Vec<WrittenRecord>) {
    let (tell, told) = channel();
    let begin = move |notes, _| tell.send(notes).expect("somebody waits");
    let disk = Disk::open(&settings(path), begin).expect("it opens");
    let notes = told.recv().expect("it begins");
    wait_for(&disk, |state| *state == DiskStanding::On);
    (disk, notes)
}

fn wait_for(disk: &Disk, is_so: impl Fn(&DiskStanding) -> bool) {
    while !is_so(&disk.state()) {
        std::thread::yield_now();
    }
}

/// Returns the bytes for a key, derived from the key alone.
fn body(key: u128) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(key as u64);
    let bytes = random.usize(0..20_000);
    (0..bytes).map(|_| random.u8(..)).collect()
}

fn read(disk: &Disk, key: u128) -> Option<Vec<u8>> {
    let (tell, told) = channel();
    if !disk.read(key, None, move |found| tell.send(found).expect("somebody waits")) {
        return None;
    }
    told.recv().expect("it is called").map(|written| written.payload)
}

/// Puts keys until the store has written as many; dropped puts do not count.
fn fill(disk: &Disk, keys: std::ops::Range<u128>) {
    keys.for_each(|key| disk.put(key, 0, vec![Bytes::from(body(key))]));
}

/// The child process: writes until it is killed.
#[test]
#[ignore = "run by the other test, in a process of its own"]
fn child() {
    let folder = std::env::var("FOLDER").expect("given");
    let disk = open(Path::new(&folder));
    let mut is_told = false;
    for key in (0..500).cycle() {
        disk.put(key, 0, vec![Bytes::from(body(key))]);
        if !is_told && disk.tally().written >= 50 {
            is_told = true;
            std::io::stderr().write_all(b"written\n").expect("somebody listens");
        }
    }
}

#[test]
fn a_hundred_kills_in_the_middle_of_writes_leave_only_what_is_right() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let mut served = 0;
    for _ in 0..100 {
        let mut child = Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env("FOLDER", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        said.read_line(&mut String::new()).expect("it says that it writes");
        child.kill().expect("SIGKILL");
        child.wait().expect("it is gone");
        let disk = open(folder.path());
        for key in 0..500 {
            if let Some(found) = read(&disk, key) {
                assert!(found == body(key), "key {key}");
                served += 1;
            }
        }
        assert_eq!(disk.tally().state, DiskStanding::On);
        assert!(disk.tally().bytes <= 8 << 20);
    }
    assert!(served > 1000, "{served}");
}

#[test]
fn what_was_put_and_removed_stays_so_in_the_next_process() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let disk = open(folder.path());
    fill(&disk, 0..100);
    disk.remove(7);
    assert!(!disk.has(7));
    let secret = disk.secret();
    // The next process gets the secret at once, and has to wait for the records.
    let next = Disk::open(&DiskSettings { fresh_secret: 2, ..settings(folder.path()) }, |_, _| {});
    let next = next.expect("it opens");
    wait_for(&next, |state| *state == DiskStanding::InUse);
    assert_eq!(next.secret(), secret);
    // Its removals meanwhile apply to the records that it finds.
    next.remove(9);
    disk.finish();
    wait_for(&next, |state| *state == DiskStanding::On);
    assert_eq!((read(&next, 7), read(&next, 8), read(&next, 9)), (None, Some(body(8)), None));
    next.finish();
    drop(disk);
    let disk = open(folder.path());
    assert_eq!(disk.secret(), secret);
    for key in 0..100 {
        assert_eq!(read(&disk, key), (key != 7 && key != 9).then(|| body(key)), "key {key}");
    }
    disk.clear();
    drop(disk);
    assert_eq!(open(folder.path()).tally().records, 0);
}

#[test]
fn notes_are_told_in_their_order_until_all_before_them_is_gone() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let payloads =
        |notes: &[WrittenRecord]| notes.iter().map(|note| note.payload.clone()).collect::<Vec<_>>();
    for run in 1..4u8 {
        let (disk, notes) = open_noted(folder.path());
        assert_eq!(payloads(&notes), (1..run).map(|note| vec![note]).collect::<Vec<_>>());
        assert!(notes.windows(2).all(|pair| pair[0].run < pair[1].run));
        disk.put(u128::from(run), 0, vec![Bytes::from_static(b"x")]);
        disk.note(vec![run]);
    }
    let disk = open(folder.path());
    disk.clear();
    disk.note(vec![9]);
    drop(disk);
    let (disk, notes) = open_noted(folder.path());
    assert_eq!((payloads(&notes), disk.has(1)), (vec![vec![9]], false));
}

#[test]
fn damage_is_noticed_dropped_and_counted() {
    let _alone = alone();
    for (what, change) in [
        (
            "turned bits",
            (|bytes: &mut Vec<u8>| bytes.iter_mut().step_by(5000).for_each(|byte| *byte ^= 4))
                as fn(&mut Vec<u8>),
        ),
        ("cut off", |bytes| bytes.truncate(bytes.len() / 2)),
        ("zeros behind", |bytes| bytes.extend([0; 100])),
        ("emptied", Vec::clear),
        ("foreign", |bytes| bytes.fill(b'x')),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = open(folder.path());
        fill(&disk, 0..100);
        disk.finish();
        fs::write(folder.path().join("README"), "somebody else's").expect("written");
        for entry in fs::read_dir(folder.path()).expect("listed") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "segment") {
                let mut bytes = fs::read(&path).expect("read");
                change(&mut bytes);
                fs::write(&path, bytes).expect("written");
            }
        }
        let disk = open(folder.path());
        (0..100).filter_map(|key| Some((key, read(&disk, key)?))).for_each(|(key, found)| {
            assert!(found == body(key), "{what}: key {key}");
        });
        let tally = disk.tally();
        assert!(tally.damaged + tally.foreign > 1 && tally.foreign >= 1, "{what}: {tally:?}");
        fill(&disk, 200..201);
        drop(disk);
        assert_eq!(read(&open(folder.path()), 200), Some(body(200)), "{what}");
        assert!(folder.path().join("README").exists());
    }
}

#[test]
fn a_folder_that_goes_away_turns_the_store_off_and_nothing_else() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let disk = open(&folder.path().join("cache"));
    fs::remove_dir_all(folder.path().join("cache")).expect("removed");
    fill(&disk, 0..1);
    wait_for(&disk, |state| matches!(state, DiskStanding::Failed(_)));
    fill(&disk, 0..1);
    assert_eq!((read(&disk, 0), disk.tally().records), (None, 0));
}

/// The next process must not find records whose removal could not be written.
#[test]
fn a_store_that_is_turned_off_leaves_nothing() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let disk = open(folder.path());
    fill(&disk, 0..10);
    wait_until_written(&disk, 10);
    // A file in the place of its second segment.
    let in_the_way = folder.path().join("0000000000000001.segment");
    fs::write(&in_the_way, "not a segment of the store".repeat(9)).expect("written");
    let mut key = 10;
    while !matches!(disk.state(), DiskStanding::Failed(_)) {
        put(&disk, key, 100 << 10);
        key += 1;
    }
    disk.remove(3);
    put(&disk, 4, 1);
    drop(disk);
    let disk = open(folder.path());
    assert_eq!((0..key).filter(|key| disk.has(*key)).collect::<Vec<_>>(), []);
    assert!(in_the_way.exists());
    fill(&disk, 0..1);
    wait_until_written(&disk, 1);
    assert!(read(&disk, 0) == Some(body(0)), "it is as good as new");
}

/// Longer than a record in these tests may be.
const TOO_LONG_BYTES: usize = 600 << 10;

fn put(disk: &Disk, key: u128, bytes: usize) {
    disk.put(key, 0, vec![Bytes::from(vec![b'x'; bytes])]);
}

fn wait_until_written(disk: &Disk, records: u64) {
    while disk.tally().written < records {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_too_long_takes_the_older_one_with_it_for_good() {
    let _alone = alone();
    for removes in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = open(folder.path());
        fill(&disk, 1..4);
        wait_until_written(&disk, 3);
        put(&disk, 2, TOO_LONG_BYTES);
        assert_eq!((disk.tally().dropped, disk.has(2), disk.has(3)), (1, false, true));
        if removes {
            assert_eq!(disk.remove(2), 0);
        }
        disk.finish();
        let disk = open(folder.path());
        assert_eq!([1, 2, 3].map(|key| read(&disk, key)), [Some(body(1)), None, Some(body(3))]);
    }
}

#[test]
fn what_there_is_no_room_for_in_the_queue_takes_older_ones_with_it() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let disk = open(folder.path());
    fill(&disk, 1..4);
    // Otherwise the old process could still hold the lock, and the next one process its queue while it waits.
    disk.finish();
    // The queue is not processed until this message arrives.
    let (tell, told) = channel();
    let begin = move |_, _| told.recv().expect("it is told");
    let disk = Disk::open(&settings(folder.path()), begin).expect("it opens");
    put(&disk, 1, 10);
    let rest = 10_000..;
    for key in rest.take_while(|_| disk.tally().dropped == 0) {
        put(&disk, key, 0);
    }
    // Both puts are dropped. An older record of the first key is in the queue, one of the second on the disk.
    put(&disk, 1, 20);
    put(&disk, 2, 20);
    tell.send(()).expect("it waits");
    wait_for(&disk, |state| *state == DiskStanding::On);
    // Queued changes are written after some time.
    while read(&disk, 10_000).is_none() {
        std::thread::yield_now();
    }
    assert_eq!([1, 2, 3, 10_000].map(|key| read(&disk, key)), [None, None, Some(body(3)), Some(Vec::new())]);
    assert_eq!(disk.tally().dropped, 3);
    disk.finish();
    let disk = open(folder.path());
    assert_eq!([1, 2, 3, 10_000].map(|key| read(&disk, key)), [None, None, Some(body(3)), Some(Vec::new())]);
}

#[test]
fn what_is_put_while_another_process_has_the_store_takes_older_ones_with_it() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let disk = open(folder.path());
    fill(&disk, 1..3);
    let next = Disk::open(&settings(folder.path()), |_, _| {}).expect("it opens");
    wait_for(&next, |state| *state == DiskStanding::InUse);
    put(&next, 1, 10);
    disk.finish();
    wait_for(&next, |state| *state == DiskStanding::On);
    let found = read(&next, 1);
    assert!(found != Some(body(1)) && read(&next, 2) == Some(body(2)), "{found:?}");
}

#[test]
fn what_is_removed_while_it_is_queued_is_not_to_be_found() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (tell, told) = channel();
    let begin = move |_, _| told.recv().expect("it is told");
    let disk = Disk::open(&settings(folder.path()), begin).expect("it opens");
    fill(&disk, 1..3);
    disk.remove(1);
    put(&disk, 1, 10);
    disk.remove(2);
    tell.send(()).expect("it waits");
    wait_for(&disk, |state| *state == DiskStanding::On);
    assert_eq!([1, 2].map(|key| read(&disk, key)), [Some(vec![b'x'; 10]), None]);
}
