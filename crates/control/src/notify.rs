//! Reports the state of the process to the service manager by sd_notify(3), and its ID in the PID file.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, Timespec, clock_gettime};

use telemetry::message;

pub(crate) fn tell(state: &str) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let send = || {
        let address = match place.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&place)?,
        };
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)
    };
    if let Err(error) = send() {
        message::warn(&format!("cannot tell the service manager at {}: {error}", place.display()));
    }
}

/// Reports the start of a reload with its time. A service of type `notify-reload` ignores reloads that began before
/// it requested one (sd_notify(3)).
pub(crate) fn tell_of_reload() {
    tell(&reloading());
}

fn reloading() -> String {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    format!("RELOADING=1\nMONOTONIC_USEC={}", tv_sec * 1_000_000 + tv_nsec / 1_000)
}

/// The PID file. Dropping it removes the file, unless another process has written its own.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the PID file atomically: readers see this process's ID, or the previous one.
    pub(crate) fn write(path: &Path) -> io::Result<Self> {
        let mut next = path.as_os_str().to_owned();
        next.push(".next");
        std::fs::write(&next, own_line())?;
        std::fs::rename(&next, path)?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if std::fs::read_to_string(&self.0).is_ok_and(|text| text == own_line()) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

fn own_line() -> String {
    format!("{}\n", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_says_when_it_began() {
        let micros = || {
            let told = reloading();
            let micros = told.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("it is one");
            micros.parse::<u64>().expect("a number")
        };
        let first = micros();
        // The clock counts from the machine's start.
        let uptime = std::fs::read_to_string("/proc/uptime").expect("the kernel tells");
        let seconds: f64 = uptime.split(' ').next().expect("it is the first").parse().expect("a number");
        assert!(first > 0 && first <= micros() && first as f64 <= seconds * 1e6 + 1e6, "{first}, {uptime}");
    }

    #[test]
    fn the_number_of_another_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pid");
        let file = PidFile::write(&path).expect("it is writable");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), own_line());
        drop(file);
        assert!(!path.exists());
        let file = PidFile::write(&path).expect("it is writable");
        std::fs::write(&path, "1\n").expect("it is writable");
        drop(file);
        assert!(path.exists());
    }
}
