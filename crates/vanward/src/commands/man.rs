//! `vanward man`: the help of each command as a page for man(1).

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap_mangen::Man;

/// Writes the help as man pages: vanward.1, and vanward-COMMAND.1 for each command.
///
/// Packages install them already.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Folder of the pages; created if missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  vanward man --out ~/.local/share/man/man1 && man vanward-run
  vanward man --out pages && man ./pages/vanward.1";

pub(crate) fn run(arguments: &ManArgs, mut command: clap::Command) -> ExitCode {
    command.build();
    match write_all(&arguments.out, &command) {
        Ok(count) => {
            super::say(format_args!("{count} man pages in {}", arguments.out.display()));
            ExitCode::SUCCESS
        }
        Err(error) => super::fail(
            super::FAILED,
            format_args!(
                "cannot write man pages to {}: {error}; --out must name a folder that this user can write to or create",
                arguments.out.display()
            ),
        ),
    }
}

/// Writes the page of a command and those of its subcommands. Returns their number.
fn write_all(folder: &Path, command: &clap::Command) -> io::Result<usize> {
    std::fs::create_dir_all(folder)?;
    Man::new(command.clone()).generate_to(folder)?;
    let mut written = 1;
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        written += write_all(folder, below)?;
    }
    Ok(written)
}
