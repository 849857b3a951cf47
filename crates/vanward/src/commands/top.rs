//! `vanward top`: a live view of the running proxy in the terminal, with keys that change it.
//!
//! One thread polls the admin API once a second, another reads keys, and the main thread draws. All state is in
//! `state`.

/// Orders of keys to the proxy.
mod order;
/// The tables of the tabs.
mod sheets;
/// Parses keys of a terminal.
mod keys;
/// The displayed state, and the effect of keys.
mod state;
/// The terminal.
mod screen;
/// Draws the state.
mod draw;
/// Polls the proxy, and executes orders.
mod feed;
/// A proxy for tests.
#[cfg(test)]
mod sample;

use std::io::{self, IsTerminal, Read as _};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use super::reach::ProxySelection;
use feed::Fresh;
use keys::KeyCommand;
use order::TopOrder;
use screen::Terminal;
use state::{KeyEffect, TopState};

/// Shows the activity of the running proxy, live: routes, servers, clients, requests under way, cache, faults.
///
/// Rates and percentiles cover the last minute, as in `vanward status`. Keys drain, restore and weigh servers,
/// purge the cache and clear faults; `?` lists them. The proxy is polled once a second, over its admin socket.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// Show only rows whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,

    #[command(flatten)]
    reach: ProxySelection,
}

const EXAMPLES: &str = "\
Without colours if NO_COLOR is set. Not for scripts: use `vanward status --watch` or `vanward status --json` there.

Examples:
  vanward top                               the proxy whose `admin` socket vanward.toml names
  vanward top --socket /run/vanward.sock
  vanward top --filter shop                 only names that contain `shop`";

enum TopEvent {
    Key(KeyCommand),
    Size,
    Fresh(Box<Result<Fresh, String>>),
    Done(Result<String, String>),
    /// A signal asks the process to end.
    End,
}

pub(crate) fn run(arguments: &TopArgs) -> ExitCode {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let message = "vanward top needs a terminal: use `vanward status --watch` for plain text";
        return super::fail(super::USAGE, message);
    }
    let line = match arguments.reach.line() {
        Ok(line) => line,
        Err(code) => return code,
    };
    let (tell, told) = channel();
    if let Err(error) = end_on_signals(tell.clone()) {
        return super::fail(super::FAILED, format_args!("cannot handle signals: {error}"));
    }
    let place = line.place();
    let (orders, sent) = channel();
    let end = Ends(tell.clone());
    thread::spawn(move || feed::run(&line, &sent, |fresh| end.0.send(fresh).is_ok()));
    let terminal = match Terminal::take() {
        Ok(terminal) => terminal,
        Err(error) => return super::fail(super::FAILED, format_args!("cannot use the terminal: {error}")),
    };
    thread::spawn(move || read_keys(&Ends(tell)));
    let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut state = TopState::new(place, arguments.filter.clone(), has_colour);
    let outcome = show(&terminal, &mut state, &told, &orders);
    drop(terminal);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::fail(super::FAILED, format_args!("cannot draw on the terminal: {error}")),
    }
}

/// Draws and handles keys until the user quits, or a signal ends it.
fn show(
    terminal: &Terminal,
    state: &mut TopState,
    told: &Receiver<TopEvent>,
    orders: &Sender<TopOrder>,
) -> io::Result<()> {
    loop {
        state.now = Instant::now();
        terminal.show(|screen| draw::draw(screen, state))?;
        let Ok(first) = told.recv() else { return Ok(()) };
        // Draws once for all waiting messages.
        for told in std::iter::once(first).chain(std::iter::from_fn(|| told.try_recv().ok())) {
            match told {
                TopEvent::Key(key) => match state.press(key) {
                    KeyEffect::Stay => {}
                    KeyEffect::Send(order) => drop(orders.send(order)),
                    KeyEffect::Quit => return Ok(()),
                },
                // Drawing again is enough.
                TopEvent::Size => {}
                TopEvent::Fresh(fresh) => state.learn(*fresh),
                TopEvent::Done(outcome) => state.done(outcome),
                TopEvent::End => return Ok(()),
            }
        }
    }
}

/// Ends the program when a thread ends, also by a panic, which has restored the terminal already.
struct Ends(Sender<TopEvent>);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.send(TopEvent::End);
    }
}

/// Sends keys until the terminal is closed.
fn read_keys(tell: &Ends) {
    let mut bytes = [0; 256];
    loop {
        let count = match io::stdin().lock().read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        if keys::keys(&bytes[..count]).into_iter().any(|key| tell.0.send(TopEvent::Key(key)).is_err()) {
            return;
        }
    }
}

/// Sends changes of the size. SIGTERM, SIGHUP and SIGINT end the program like a key, so that the terminal is restored.
fn end_on_signals(tell: Sender<TopEvent>) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut hang_up, mut interrupt, mut size) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::window_change())?,
        )
    };
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = terminate.recv() => return,
                    _ = hang_up.recv() => return,
                    _ = interrupt.recv() => return,
                    _ = size.recv() => drop(tell.send(TopEvent::Size)),
                }
            }
        });
        let _ = tell.send(TopEvent::End);
    });
    Ok(())
}
