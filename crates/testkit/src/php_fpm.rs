//! php-fpm with the scripts of a test. It ends with the value.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::installed::installed;
use crate::wait::assert_soon;

pub struct PhpFpm {
    child: Child,
    directory: TempDir,
}

impl PhpFpm {
    /// Starts two processes with these scripts, by their path below the root; `None` if php-fpm is not installed. In CI, it
    /// has to be.
    pub fn start(scripts: &[(&str, &str)]) -> Option<Self> {
        Self::with_processes(scripts, "pm = static\npm.max_children = 2\n")
    }

    /// Starts a process for each connection, so that none waits for connections that others keep.
    pub fn start_on_demand(scripts: &[(&str, &str)]) -> Option<Self> {
        Self::with_processes(scripts, "pm = ondemand\npm.max_children = 64\n")
    }

    fn with_processes(scripts: &[(&str, &str)], processes: &str) -> Option<Self> {
        let program = program()?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path().join("public");
        for (name, text) in scripts {
            let script = root.join(name);
            fs::create_dir_all(script.parent().expect("is in a directory")).expect("a directory");
            fs::write(script, text).expect("a file");
        }
        let at = |name: &str| directory.path().join(name).display().to_string();
        let settings = format!(
            "[global]\nerror_log = {}\ndaemonize = no\n[www]\nuser = root\nlisten = {}\n{processes}\
             ping.path = /ping\nphp_admin_value[post_max_size] = 200M\n\
             php_admin_value[memory_limit] = 32M\nphp_admin_value[sys_temp_dir] = {}\n",
            at("log"),
            at("socket"),
            directory.path().display(),
        );
        fs::write(at("fpm.conf"), settings).expect("a file");
        let mut command = Command::new(program);
        command.args(["-n", "-R", "-F", "-y", &at("fpm.conf")]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut fpm = Self { child: child.expect("it starts"), directory };
        assert_soon("php-fpm does not listen", || {
            assert_eq!(fpm.child.try_wait().expect("is a child"), None, "php-fpm runs");
            UnixStream::connect(fpm.socket()).is_ok()
        });
        Some(fpm)
    }

    /// The path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// The directory of the scripts.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("public")
    }

    /// An upstream of this name, as tables of a configuration.
    pub fn upstream(&self, name: &str) -> String {
        let (socket, root) = (self.socket(), self.root());
        format!(
            "[upstream.{name}]\nservers = [\"fcgi+unix:{}\"]\nfastcgi = {{ root = \"{}\" }}\n",
            socket.display(),
            root.display()
        )
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        // Not a kill: php-fpm has to end its workers first.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// The program, which Debian names by its version.
fn program() -> Option<PathBuf> {
    let files = fs::read_dir("/usr/sbin").into_iter().flatten().flatten().map(|file| file.path());
    let is_it =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"));
    files.filter(|path| is_it(path)).max().or_else(|| installed("php-fpm"))
}
