//! What a project asks of whoever runs it, as the command line hears of it: flags, the variable, and the terminal.

pub mod screen;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt as _;
use llm_do::BoxFuture;
use llm_do::project::trust::{SurveyedProject, TrustDigest, TrustedProject};
use llm_do::tools::source::McpServer;
use llm_do_launch::error::{LaunchError, TrustList};
use llm_do_launch::state::State;
use llm_do_launch::trust::{self, Consent, Settlement, Standing, TrustAnswers, TrustChoice, TrustPrompt};

use crate::args::NOW;
use crate::attention::Stage;
use crate::console;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::run;
use crate::signals::Signals;
use crate::terminal::{Keys, Size, Terminal};
use screen::List;

/// Who answers whether a project is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Answerers {
    /// `--trust`: kept.
    pub flag: Option<Consent>,
    /// `LLM_DO_TRUST`, or a program: for this process alone.
    pub once: Option<Consent>,
    /// Somebody at a terminal.
    pub person: bool,
}

const VARIABLE: &str = "LLM_DO_TRUST";
const DIGITS: &str = "a digest of a trust list has 32 hex digits";

/// As `--trust` was typed: with a digest behind it, or without.
pub fn typed(flag: Option<&str>) -> Result<Option<Consent>, Failure> {
    match flag {
        None => Ok(None),
        Some(NOW) => Ok(Some(Consent::Everything)),
        Some(text) => match TrustDigest::parse(text) {
            Some(digest) => Ok(Some(Consent::List(digest))),
            None => Err(Failure::usage("`--trust=…` is no digest").hint(DIGITS)),
        },
    }
}

/// As the environment says.
pub fn of_variable(environment: &Environment) -> Result<Option<Consent>, Failure> {
    match environment.get(VARIABLE) {
        None => Ok(None),
        Some("1") => Ok(Some(Consent::Everything)),
        Some(text) => match TrustDigest::parse(text) {
            Some(digest) => Ok(Some(Consent::List(digest))),
            None => Err(Failure::usage(format!("{VARIABLE} is neither `1` nor a digest")).hint(DIGITS)),
        },
    }
}

impl Answerers {
    fn answers<'a>(&self, prompt: &'a TerminalPrompt<'_>) -> TrustAnswers<'a> {
        let (kept, once) = (self.flag.clone(), self.once.clone());
        TrustAnswers { kept, once, prompt: self.person.then_some(prompt as &dyn TrustPrompt) }
    }
}

/// How it stands with a project, without asking anybody.
pub fn standing(surveyed: &SurveyedProject, answerers: &Answerers, state: &State) -> Result<Standing, Failure> {
    let (kept, once) = (answerers.flag.clone(), answerers.once.clone());
    Ok(trust::standing(surveyed, &TrustAnswers { kept, once, prompt: None }, state)?)
}

/// A project that somebody agreed to, or why it is none. `shown` is how its user calls it.
pub fn settle(
    surveyed: SurveyedProject,
    shown: &Path,
    answerers: &Answerers,
    state: &State,
) -> Result<TrustedProject, Failure> {
    let prompt = TerminalPrompt { project: shown, failure: Mutex::default() };
    let settled = trust::settle(surveyed, &answerers.answers(&prompt), state).now_or_never();
    let failure = prompt.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    match (settled, failure) {
        (Some(Ok(Settlement { trusted, news, unkept })), None) => {
            if !news.is_empty() {
                let lines: Vec<String> = screen::lines(&news).into_iter().map(|line| format!("{line}\n")).collect();
                console::complain(&format!("note: new in this place, which you trust:\n{}", lines.concat()));
            }
            tell_unkept(unkept);
            Ok(trusted)
        }
        (_, Some(failure)) => Err(failure),
        (Some(Err(error)), None) => {
            if let LaunchError::Untrusted(untrusted) = &error
                && !(answerers.person && answerers.flag.is_none())
            {
                console::complain(&List::of(shown, &untrusted.list).whole());
            }
            Err(error.into())
        }
        // The terminal answers before it returns, and so does everybody else.
        (None, None) => Err(Failure::failed("nobody answered whether the project is trusted")),
    }
}

/// Trusts a project for whoever has just written all of it.
pub fn keep_written(surveyed: &SurveyedProject, state: &State) -> Result<(), Failure> {
    tell_unkept(trust::keep_written(surveyed, state)?);
    Ok(())
}

fn tell_unkept(unkept: Option<String>) {
    if let Some(error) = unkept {
        console::complain(&format!("note: trust cannot be kept, it will be asked for again: {error}\n"));
    }
}

pub fn untrusted() -> Failure {
    Failure::refused("the project is not trusted")
}

/// The person at the terminal.
struct TerminalPrompt<'p> {
    project: &'p Path,
    /// Why there is no answer: a signal, or no terminal.
    failure: Mutex<Option<Failure>>,
}

impl TrustPrompt for TerminalPrompt<'_> {
    fn ask<'a>(&'a self, list: &'a TrustList) -> BoxFuture<'a, Result<TrustChoice, LaunchError>> {
        let answer = ask_about(&List::of(self.project, list), list.offers_place).unwrap_or_else(|failure| {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            TrustChoice::No
        });
        Box::pin(std::future::ready(Ok(answer)))
    }
}

/// How a server is reached: its command, or its address.
pub fn reached(server: &McpServer) -> String {
    match server {
        McpServer::Command { command, args, .. } => {
            let words: Vec<&str> = std::iter::once(command).chain(args).map(String::as_str).collect();
            words.join(" ")
        }
        McpServer::Url { url, .. } => url.clone(),
    }
}

const WITH_PLACE: &str = "y trust exactly this   p trust this place, whatever it will contain   n no";
const WITHOUT_PLACE: &str = "y trust exactly this   n no";

/// Before the run and its executor.
fn ask_about(list: &List<'_>, offers_place: bool) -> Result<TrustChoice, Failure> {
    attended(async |terminal, asking| {
        let choices = if offers_place { WITH_PLACE } else { WITHOUT_PLACE };
        let Size { rows, columns } = terminal.size();
        for page in list.pages(rows, columns, choices) {
            asking.show(&page.text, if page.is_last { Stage::Answer } else { Stage::Page }).await?;
            if !page.is_last && !asking.wants_more().await? {
                return Ok(TrustChoice::No);
            }
        }
        asking.answer(offers_place).await
    })
}

/// The same for another question: yes or no.
pub fn ask(question: &str) -> Result<bool, Failure> {
    attended(async |_, asking| {
        asking.show(question, Stage::Answer).await?;
        Ok(asking.answer(false).await? == TrustChoice::Exactly)
    })
}

fn attended<T>(question: impl AsyncFnOnce(&Terminal, &mut Questions<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
    run::executor()?.block_on(async {
        let mut signals = Signals::listen()?;
        let terminal = Terminal::open().map_err(unreadable)?;
        let keys = terminal.keys().map_err(unreadable)?;
        question(&terminal, &mut Questions { keys, signals: &mut signals }).await
    })
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives it away")]
fn unreadable(error: std::io::Error) -> Failure {
    Failure::failed(format!("the terminal cannot be read: {error}"))
}

struct Questions<'a> {
    keys: Keys<'a>,
    signals: &'a mut Signals,
}

impl Questions<'_> {
    async fn show(&mut self, text: &str, stage: Stage) -> Result<(), Failure> {
        tokio::select! {
            () = self.keys.show(text, stage) => Ok(()),
            signal = self.signals.next() => Err(signal.stops().failure()),
        }
    }

    async fn key(&mut self) -> Result<u8, Failure> {
        tokio::select! {
            key = self.keys.next() => Ok(key.map_err(unreadable)?.to_ascii_lowercase()),
            signal = self.signals.next() => Err(signal.stops().failure()),
        }
    }

    /// Below a page that is not the last: there is nothing to agree to yet.
    async fn wants_more(&mut self) -> Result<bool, Failure> {
        loop {
            match self.key().await? {
                b' ' | b'\r' | b'\n' => return Ok(true),
                b'n' | b'q' | b'd' => return Ok(false),
                _ => console::complain("\u{7}"),
            }
        }
    }

    async fn answer(&mut self, offers_place: bool) -> Result<TrustChoice, Failure> {
        let mut pressed = false;
        loop {
            match self.key().await? {
                b'y' => return Ok(TrustChoice::Exactly),
                b'n' | b'q' | b'd' => return Ok(TrustChoice::No),
                b'p' if offers_place && pressed => return Ok(TrustChoice::Place),
                b'p' if offers_place => {
                    pressed = true;
                    let warning = "p again: whatever this place will contain runs without a question\n";
                    self.show(warning, Stage::Answer).await?;
                }
                _ => {
                    pressed = false;
                    console::complain("\u{7}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
