//! CPU time that the kernel charges to a control group: all threads and children of a program, including short-lived
//! ones. Without cgroup version 2, or without the permission to use it, `usage` adds up threads instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Control group for one program and its children. Removed with the last handle, after all its processes have ended.
#[derive(Debug, Clone)]
pub(crate) struct ControlGroup(Arc<ChargedFolder>);

#[derive(Debug)]
struct ChargedFolder(PathBuf);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charged {
    pub(crate) user_microseconds: u64,
    pub(crate) system_microseconds: u64,
}

/// Script that enters a control group before the program starts: `sh -c JOIN sh GROUP PROGRAM ARGUMENTS`.
const JOIN: &str = "echo $$ >\"$1/cgroup.procs\" || exit 1; shift; exec \"$@\"";

/// Prefix of the names of control groups, followed by their maker's process ID and a number.
const NAME: &str = "vanward-lab-";

/// Number of attempts to remove a control group whose processes were killed.
const LOOKS: u32 = 50;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

impl ControlGroup {
    /// Makes an empty control group within that of this process. `None` if the system does not allow it.
    pub(crate) fn new() -> Option<Self> {
        Self::within(own()?)
    }

    fn within(parent: &Path) -> Option<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("{NAME}{}-{number}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let made = Self(Arc::new(ChargedFolder(folder)));
        // A hierarchy without accounting is useless.
        made.charged().is_some().then_some(made)
    }

    /// Whether programs can be started in the group: permission to make a group does not imply permission to enter.
    fn can_be_entered(&self) -> bool {
        let entered = self.entered(&["true".to_owned()]);
        let mut command = Command::new(&entered[0]);
        command.args(&entered[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// Command line that runs `command` within the control group.
    pub(crate) fn entered(&self, command: &[String]) -> Vec<String> {
        let folder = self.0.0.to_string_lossy();
        ["sh", "-c", JOIN, "sh", &folder]
            .into_iter()
            .map(str::to_owned)
            .chain(command.iter().cloned())
            .collect()
    }

    #[cfg(test)]
    pub(crate) fn folder(&self) -> &Path {
        &self.0.0
    }

    /// CPU time charged until now.
    pub(crate) fn charged(&self) -> Option<Charged> {
        read(&fs::read_to_string(self.0.0.join("cpu.stat")).ok()?)
    }
}

impl Drop for ChargedFolder {
    fn drop(&mut self) {
        for _ in 0..LOOKS {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            // A process has left the killed process group, but is still in this control group.
            let _ = fs::write(self.0.join("cgroup.kill"), "1");
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

/// Sum of the CPU times of several groups; `None` if one is unknown.
pub(crate) fn sum(charged: impl Iterator<Item = Option<Charged>>) -> Option<Charged> {
    charged.reduce(|one, other| {
        let (one, other) = (one?, other?);
        Some(Charged {
            user_microseconds: one.user_microseconds + other.user_microseconds,
            system_microseconds: one.system_microseconds + other.system_microseconds,
        })
    })?
}

fn read(stat: &str) -> Option<Charged> {
    let number = |name: &str| {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value?.trim().parse().ok()
    };
    Some(Charged { user_microseconds: number("user_usec")?, system_microseconds: number("system_usec")? })
}

/// Folder of this process's control group, if programs can be started in groups within it.
fn own() -> Option<&'static Path> {
    static OWN: OnceLock<Option<PathBuf>> = OnceLock::new();
    OWN.get_or_init(|| {
        let read = |file| fs::read_to_string(file).ok();
        let folder = folder_of(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)?;
        sweep(&folder);
        ControlGroup::within(&folder)?.can_be_entered().then_some(folder)
    })
    .as_deref()
}

/// Folder of a process's control group, from its groups (cgroups(7)) and mounts (proc_pid_mountinfo(5)).
fn folder_of(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?.to_owned(), PathBuf::from(fields.next()?));
        (kind.split(' ').next() == Some("cgroup2")).then_some((root, point))
    };
    let (root, point) = mounts.lines().find_map(mount)?;
    // Inside a container, the mounted group may not be the root.
    Some(point.join(Path::new(group).strip_prefix(root).ok()?))
}

/// Removes empty control groups whose makers were killed before they could remove them.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let maker =
            name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next()?.parse::<u32>().ok());
        if maker.is_some_and(|maker| !Path::new(&format!("/proc/{maker}")).exists()) {
            // The kernel keeps groups that contain processes.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_left_is_removed_once_they_are_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        // No process has the highest number.
        let (gone, here) = (format!("{NAME}{}-7", u32::MAX), format!("{NAME}{}-7", std::process::id()));
        let others = [here.as_str(), "vanward-lab-mine", "user.slice"];
        for name in others.into_iter().chain([gone.as_str()]) {
            fs::create_dir(folder.path().join(name)).expect("a new folder");
        }
        sweep(folder.path());
        assert!(!folder.path().join(gone).exists());
        assert!(others.iter().all(|name| folder.path().join(name).exists()));
    }

    #[test]
    fn the_folder_is_found_below_the_mount() {
        let mounts = "24 29 0:22 / /proc rw,nosuid - proc proc rw\n\
                      29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
                      31 24 0:26 /a /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let folder = |groups| folder_of(groups, mounts);
        assert_eq!(folder("4:cpu:/x\n0::/a/user.slice\n"), Some("/sys/fs/cgroup/user.slice".into()));
        assert_eq!(folder("0::/b\n"), None, "another group is mounted");
        assert_eq!(folder("4:cpu:/a\n"), None);
        assert_eq!(folder_of("0::/a\n", "29 1 254:0 / / rw - ext4 /dev/root rw\n"), None);
    }

    #[test]
    fn what_was_charged_is_read_by_its_names() {
        let stat = "usage_usec 33005\nuser_usec 25075\nsystem_usec 7930\nnice_usec 0\n";
        let charged = Charged { user_microseconds: 25_075, system_microseconds: 7930 };
        assert_eq!(read(stat), Some(charged));
        for less in ["", "usage_usec 33005\n", "user_usec 1\n", "user_usec x\nsystem_usec 1\n"] {
            assert_eq!(read(less), None, "{less}");
        }
        let twice = Charged { user_microseconds: 50_150, system_microseconds: 15_860 };
        assert_eq!(sum([Some(charged), Some(charged)].into_iter()), Some(twice));
        assert_eq!(sum([Some(charged), None].into_iter()), None);
        assert_eq!(sum(std::iter::empty()), None);
    }
}
