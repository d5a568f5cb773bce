//! A fence that the kernel keeps around what is started here: what it may read, write, execute and reach, whatever it
//! and all that it starts try.
//!
//! *Full*: files, processes and IPC of its own (`keep`, started and spoken to by `full`), and inside of that
//! Landlock and seccomp. *Thin*: these two alone (`thin`), where the kernel gives an ordinary user no namespaces.

pub(crate) mod bounds;
#[cfg(target_os = "linux")]
pub(crate) mod full;
#[cfg(target_os = "linux")]
pub mod keep;
#[cfg(target_os = "linux")]
mod lodge;
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are no keepers to be spoken to"))]
pub(crate) mod message;
#[cfg(target_os = "linux")]
mod mounts;
pub mod private;
pub(crate) mod shelter;
pub mod tenant;
#[cfg(target_os = "linux")]
pub mod thin;
pub(crate) mod written;

#[cfg(not(target_os = "linux"))]
pub mod absent;
#[cfg(not(target_os = "linux"))]
pub use absent as keep;
#[cfg(not(target_os = "linux"))]
pub(crate) use absent as full;
#[cfg(not(target_os = "linux"))]
pub(crate) use absent as thin;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::remedy::Wording;
pub use bounds::{Bounds, Network, Shelter, Write};
use full::Keepers;
use private::TemporaryPlace;
use written::WrittenRoots;

/// Which fences may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fencing {
    /// The best that the kernel offers.
    #[default]
    WhereOffered,
    /// The thin one at most.
    Thin,
    /// No fence. The grammars of shells must be safe without one, and tests see to that.
    Off,
}

/// Which fence is enough for a rule that allows a command without a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    /// Nothing less than the full fence.
    #[default]
    Full,
    /// The user knows that what lies in a directory that commands write cannot be kept from them.
    Thin,
}

/// What a session decided about fences.
#[derive(Clone, Debug, Default)]
pub struct FenceConfig {
    /// Whether commands are fenced.
    pub fencing: Fencing,
    /// How much of a fence is enough.
    pub accept: Accept,
    /// A program that becomes the keeper when its first argument is `keep::COMMAND`: `llm-do` itself, or
    /// `llm-do-keeper`. Without one there is the thin fence at most.
    pub keeper: Option<PathBuf>,
    /// What commands never see: where the program keeps its own.
    pub hidden: Vec<PathBuf>,
    /// The user's home: what is hidden in it stays as it is, since shells, editors and desktops run and obey it.
    pub home: Option<PathBuf>,
    /// Where the user wants temporary files, such as `TMPDIR`; else `/tmp`.
    pub temporary: Option<PathBuf>,
    /// What shells declare that they write, as it was when the run began.
    pub written: Arc<WrittenRoots>,
    /// How advice is worded within a question or an error.
    pub wording: Wording,
    /// What was found, shared by everything that needs it.
    pub found: Arc<OnceLock<Arc<Fence>>>,
}

impl FenceConfig {
    /// The fence of the session, which is looked for when it is first needed.
    pub fn fence(&self) -> Arc<Fence> {
        Arc::clone(self.found.get_or_init(|| Arc::new(Fence::find(self))))
    }
}

/// The fence of a session, found out by trying.
#[derive(Debug)]
pub struct Fence {
    /// Which one it is.
    pub kind: FenceKind,
    /// How much of a fence is enough.
    pub accept: Accept,
    /// The program that keeps commands in.
    pub keeper: Option<PathBuf>,
    /// Directories that commands do not see.
    pub hidden: Vec<PathBuf>,
    /// Without links.
    pub home: Option<PathBuf>,
    /// Where temporary files lie.
    pub temporary: TemporaryPlace,
    /// Directories that commands may write.
    pub written: Arc<WrittenRoots>,
    /// How advice is worded within a question or an error.
    pub wording: Wording,
}

/// Which fence there is, and why no better one.
#[derive(Debug)]
pub enum FenceKind {
    /// Namespaces, with a keeper for each set of bounds.
    Full {
        /// The keepers.
        keepers: Keepers,
    },
    /// Landlock and seccomp alone.
    Thin {
        /// What it is made of, in words.
        words: String,
        /// Why there is no more than that.
        why: String,
    },
    /// No fence.
    None {
        /// Why there is none.
        why: String,
    },
}

impl Fence {
    /// Tries what there is. A keeper that this starts is the one that the first command runs in.
    pub fn find(config: &FenceConfig) -> Self {
        let kind = match config.fencing {
            Fencing::Off => FenceKind::None { why: "it is switched off".to_owned() },
            Fencing::Thin => thin_or_none("only the thin one was asked for".to_owned()),
            Fencing::WhereOffered => match config.keeper.as_ref() {
                None => thin_or_none("no keeper was given".to_owned()),
                Some(keeper) => match Keepers::start(keeper) {
                    Ok(keepers) => FenceKind::Full { keepers },
                    Err(why) => thin_or_none(why),
                },
            },
        };
        Self {
            kind,
            accept: config.accept,
            keeper: config.keeper.clone(),
            hidden: config.hidden.clone(),
            home: config.home.as_ref().and_then(|home| home.canonicalize().ok()),
            temporary: TemporaryPlace::new(config.temporary.as_deref()),
            written: Arc::clone(&config.written),
            wording: config.wording,
        }
    }

    /// Whether commands have files, processes and IPC of their own.
    pub fn is_full(&self) -> bool {
        matches!(self.kind, FenceKind::Full { .. })
    }

    /// Whether the kernel keeps any fence, full or thin.
    pub fn is_there(&self) -> bool {
        !matches!(self.kind, FenceKind::None { .. })
    }

    /// Which one it is, in a word.
    pub fn name(&self) -> &'static str {
        match self.kind {
            FenceKind::Full { .. } => "full",
            FenceKind::Thin { .. } => "thin",
            FenceKind::None { .. } => "none",
        }
    }

    /// What it is, for people.
    pub fn words(&self) -> String {
        match &self.kind {
            FenceKind::Full { .. } => format!("full ({})", full_words()),
            FenceKind::Thin { words, why } => format!("thin ({words}); not full: {why}"),
            FenceKind::None { why } => format!("none: {why}"),
        }
    }
}

/// The full fence in words. Landlock is found out about by trying, which takes as long as starting a command, so it
/// is done only for a reader of the words.
fn full_words() -> String {
    let landlock = thin::offered().unwrap_or_else(|_| "no Landlock; seccomp".to_owned());
    format!("files, processes and IPC of its own; {landlock}")
}

fn thin_or_none(why: String) -> FenceKind {
    match thin::offered() {
        Ok(words) => FenceKind::Thin { words, why },
        Err(reason) => FenceKind::None { why: reason },
    }
}
