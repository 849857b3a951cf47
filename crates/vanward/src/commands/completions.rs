//! `vanward completions`: completions of commands and flags for a shell.

use std::io::{self, Write};
use std::process::ExitCode;

use clap_complete::Shell;

/// Prints the completions of commands and flags for a shell.
///
/// Packages install them already. They are generated from the same source as the help.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Shell that reads the completions
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  vanward completions bash > ~/.local/share/bash-completion/completions/vanward
  vanward completions zsh > ~/.zfunc/_vanward      with ~/.zfunc in fpath, before compinit
  vanward completions fish > ~/.config/fish/completions/vanward.fish
  vanward completions elvish >> ~/.config/elvish/rc.elv";

pub(crate) fn run(arguments: &CompletionsArgs, mut command: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "vanward", &mut script);
    match io::stdout().write_all(&script) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::fail(super::FAILED, format_args!("the completions cannot be written: {error}")),
    }
}
