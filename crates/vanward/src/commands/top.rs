//! `vanward top`: a live view of the running proxy in the terminal, with keys that change it.
//!
//! A thread asks the admin API once a second, another reads keys, and the main thread draws. All state is in `state`.

/// What a key sends to the proxy.
mod order;
/// The tables of the tabs.
mod sheets;
/// What is shown, and what keys do about it.
mod state;
/// Draws the state.
mod draw;
/// Asks the proxy, and carries out orders.
mod feed;
/// A proxy for tests.
#[cfg(test)]
mod sample;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::reach::Reach;
use feed::Fresh;
use order::Order;
use state::{Course, State};

/// Shows what the running proxy does, live: routes, servers, clients, requests under way, cache, faults.
///
/// Rates and percentiles are those of the last minute, as in `vanward status`. Keys drain, restore and weigh servers, purge
/// the cache and clear faults; `?` lists them. The proxy is asked once a second, over its admin socket.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Show only rows whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,

    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = "\
Without colours if NO_COLOR is set. Not for scripts: use `vanward status --watch` or `vanward status --json` there.

Examples:
  vanward top                               the proxy whose `admin` socket vanward.toml names
  vanward top --socket /run/vanward.sock
  vanward top --filter shop                 what has `shop` in its name";

/// What the main thread is told.
enum Told {
    Terminal(Event),
    Fresh(Box<Result<Fresh, String>>),
    Done(Result<String, String>),
    /// The process is asked to end.
    End,
}

pub(crate) fn run(arguments: &Args) -> ExitCode {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let message =
            "vanward top draws on a terminal, and this is none: use `vanward status --watch` for a text";
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
    // It restores the terminal also when the program panics.
    let mut terminal = match ratatui::try_init() {
        Ok(terminal) => terminal,
        Err(error) => return super::fail(super::FAILED, format_args!("cannot use the terminal: {error}")),
    };
    thread::spawn(move || read_keys(&Ends(tell)));
    let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut state = State::new(place, arguments.filter.clone(), has_colour);
    let outcome = show(&mut terminal, &mut state, &told, &orders);
    ratatui::restore();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::fail(super::FAILED, format_args!("cannot draw on the terminal: {error}")),
    }
}

/// Draws and obeys until the user quits, or a signal ends it.
fn show(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    told: &Receiver<Told>,
    orders: &Sender<Order>,
) -> io::Result<()> {
    loop {
        state.now = Instant::now();
        terminal.draw(|frame| draw::draw(frame, state))?;
        let Ok(first) = told.recv() else { return Ok(()) };
        // Draws once for all that has come meanwhile.
        for told in std::iter::once(first).chain(std::iter::from_fn(|| told.try_recv().ok())) {
            match told {
                Told::Terminal(Event::Key(key)) if key.is_press() => match state.press(key) {
                    Course::Stay => {}
                    Course::Send(order) => drop(orders.send(order)),
                    Course::Quit => return Ok(()),
                },
                // Whatever else, such as another size: it is drawn anew.
                Told::Terminal(_) => {}
                Told::Fresh(fresh) => state.learn(*fresh),
                Told::Done(outcome) => state.done(outcome),
                Told::End => return Ok(()),
            }
        }
    }
}

/// The end of a thread, however it comes, is that of the program: a panic has restored the terminal already.
struct Ends(Sender<Told>);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.send(Told::End);
    }
}

/// Hands on keys and changes of the size, until the terminal is gone.
fn read_keys(tell: &Ends) {
    while let Ok(event) = event::read() {
        if tell.0.send(Told::Terminal(event)).is_err() {
            return;
        }
    }
}

/// Has SIGTERM, SIGHUP and SIGINT end the program as a key does, so that the terminal is restored.
fn end_on_signals(tell: Sender<Told>) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut hang_up, mut interrupt) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?, signal(SignalKind::interrupt())?)
    };
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        let _ = tell.send(Told::End);
    });
    Ok(())
}
