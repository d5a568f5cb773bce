//! The files of lasting rules: the user's own, and the organisation's. A file that is wrong, or that others may write, stops
//! everything: a rule in it may block what would run.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use llm_do::ApprovalRequest;
use llm_do::approval::{JudgementRecord, Memory, VerdictKind};
use llm_do::files::{self, FileAccess};
use llm_do::policy::{
    CallOutlook, Explanation, LastingRule, LastingRules, RuleDraft, RuleFile, RuleSource, RuledCall, read_rules,
};
use llm_do::store::period::{CalendarDay, LocalZone};
use rustix::fs::{FlockOperation, flock};

use crate::error::LaunchError;
use crate::settings::Settings;

/// Where the organisation's rules are: root's, and writable by root alone.
pub const ORGANISATION: &str = "/etc/llm-do/rules.toml";
/// The user's own, in the state directory.
pub const OWN: &str = "rules.toml";
/// A file of rules is far smaller.
const LARGEST: u64 = 1024 * 1024;

/// Today, as rules write it.
pub fn today() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    CalendarDay::of(u64::try_from(now.as_millis()).unwrap_or_default(), &LocalZone::of_process()).to_string()
}

/// The last day of a rule that is added today, unless it is to last for good.
pub fn in_30_days() -> String {
    let then = SystemTime::now() + Duration::from_hours(30 * 24);
    let then = then.duration_since(UNIX_EPOCH).unwrap_or_default();
    CalendarDay::of(u64::try_from(then.as_millis()).unwrap_or_default(), &LocalZone::of_process()).to_string()
}

/// What tells the rules in force for a project from others; nothing if there are none.
pub fn digest(manifest: &[Arc<LastingRule>], others: &[Arc<LastingRule>], project: &Path) -> Option<String> {
    let all: Vec<_> = manifest.iter().chain(others).cloned().collect();
    if all.is_empty() {
        return None;
    }
    Some(LastingRules::in_force(all, project, Some(&today())).digest())
}

/// Where the user's own rules are kept, if anything is.
pub fn own_file(settings: &Settings) -> Option<PathBuf> {
    settings.state.directory().map(|state| state.join(OWN))
}

/// The rules of the user and of the organisation.
pub fn load(settings: &Settings) -> Result<Vec<Arc<LastingRule>>, LaunchError> {
    let files = read(settings)?;
    if files.is_empty() { Ok(Vec::new()) } else { read_rules(&files).map_err(LaunchError::Project) }
}

/// The files themselves, as far as there are any.
pub fn read(settings: &Settings) -> Result<Vec<RuleFile>, LaunchError> {
    let own = own_file(settings).map(|path| (path, RuleSource::Yours));
    let organisation = (settings.organisation_rules.clone(), RuleSource::Organisation);
    let mut found = Vec::new();
    for (path, source) in own.into_iter().chain([organisation]) {
        let label = match source {
            RuleSource::Organisation => path.display().to_string(),
            RuleSource::Manifest | RuleSource::Yours => OWN.to_owned(),
        };
        if let Some(text) = read_one(&path, source)? {
            found.push(RuleFile { path, label, text, source });
        }
    }
    Ok(found)
}

fn read_one(path: &Path, source: RuleSource) -> Result<Option<String>, LaunchError> {
    let wrong = |what: &str| LaunchError::usage(format!("the rules in {} cannot count: {what}", path.display()));
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(wrong(&error.to_string())),
    };
    if !metadata.is_file() {
        return Err(wrong("it is no regular file").hint("rules are read from a file, not through a link"));
    }
    check_owner(&metadata, source).map_err(|(what, hint)| wrong(what).hint(hint))?;
    if let (RuleSource::Organisation, Some(directory)) = (source, path.parent()) {
        let of_directory = fs::metadata(directory).map_err(|error| wrong(&error.to_string()))?;
        let (what, hint) = ("its directory is not root's alone", "give it to root, writable by root alone");
        check_owner(&of_directory, source).map_err(|_| wrong(what).hint(hint))?;
    }
    let bytes = files::read_regular(path, LARGEST).map_err(|error| wrong(&error.to_string()))?;
    String::from_utf8(bytes).map(Some).map_err(|_| wrong("it is not UTF-8"))
}

/// Whoever can write the rules decides what runs.
fn check_owner(metadata: &fs::Metadata, source: RuleSource) -> Result<(), (&'static str, &'static str)> {
    let (owner, may_others_write) = (metadata.uid(), metadata.mode() & 0o022 != 0);
    match source {
        RuleSource::Organisation if owner != 0 => Err(("it is not root's", "give it to root, writable by root alone")),
        RuleSource::Manifest | RuleSource::Yours if owner != rustix::process::geteuid().as_raw() && owner != 0 => {
            Err(("it belongs to another user", "remove it, or make it yours"))
        }
        _ if may_others_write => Err(("others may write it", "take that right away: chmod go-w")),
        RuleSource::Organisation | RuleSource::Manifest | RuleSource::Yours => Ok(()),
    }
}

/// Adds rules to the user's own, all of them or none: the file that comes of it is read before it takes the place of the old one.
pub fn add(settings: &Settings, drafts: &[RuleDraft]) -> Result<PathBuf, LaunchError> {
    let added: Vec<String> = drafts.iter().map(RuleDraft::toml).collect();
    add_text(settings, &added.join("\n"))
}

fn add_text(settings: &Settings, added: &str) -> Result<PathBuf, LaunchError> {
    change(settings, |text| {
        let beginning = if text.is_empty() { HEAD } else { "" };
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        Ok(format!("{beginning}{text}{gap}\n{added}"))
    })
}

/// Rules that were added while a session went on, which read its rules when it began: they count in it at once.
#[derive(Debug, Default)]
pub struct AddedRules(Vec<Arc<LastingRule>>);

impl AddedRules {
    /// Adds what a person agreed to, to the user's own rules.
    pub fn add(&mut self, settings: &Settings, text: &str) -> Result<PathBuf, LaunchError> {
        let rules = check(text)?;
        let path = add_text(settings, text)?;
        self.0.extend(rules);
        Ok(path)
    }

    /// Whether one of them answers the question. What always asks is never answered by a rule.
    pub fn cover(&self, request: &ApprovalRequest, project: &Path) -> bool {
        if self.0.is_empty() || request.memory != Memory::CallOrTool {
            return false;
        }
        let ApprovalRequest { path, tool, arguments, about, .. } = request;
        let call = RuledCall { tool, path, arguments: Some(arguments), subject: about.as_ref() };
        let rules = LastingRules::in_force(self.0.iter().cloned(), project, Some(&today()));
        let asks = JudgementRecord {
            verdict: VerdictKind::Ask,
            about: about.clone(),
            variant: None,
            worker: None,
            manifest: None,
            yours: None,
            organisation: None,
            by: None,
            rule: None,
            why: None,
            call: None,
            edited: None,
        };
        Explanation::again(&asks, call, &rules).outlook == CallOutlook::Run
    }
}

/// Whether a text is rules that can be added.
pub fn check(text: &str) -> Result<Vec<Arc<LastingRule>>, LaunchError> {
    let (path, label) = (PathBuf::from(OWN), OWN.to_owned());
    let files = [RuleFile { path, label, text: text.to_owned(), source: RuleSource::Yours }];
    read_rules(&files).map_err(LaunchError::Project)
}

const HEAD: &str = "# Your rules about calls, for all projects.\n";

/// Replaces the user's own rules by what a change makes of them, while nobody else changes them. What is not a file of
/// rules is not kept.
pub fn change(
    settings: &Settings,
    change: impl FnOnce(&str) -> Result<String, LaunchError>,
) -> Result<PathBuf, LaunchError> {
    let path = own_file(settings).ok_or_else(|| LaunchError::usage("there is no home directory to keep rules in"))?;
    let unkept = |error: io::Error| LaunchError::failed(format!("{} cannot be written: {error}", path.display()));
    if let Some(state) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(unkept)?;
    }
    let _lock = lock(&path.with_extension("lock")).map_err(unkept)?;
    let text = change(&read_one(&path, RuleSource::Yours)?.unwrap_or_default())?;
    let file = RuleFile { path: path.clone(), label: OWN.to_owned(), text, source: RuleSource::Yours };
    let files = [file];
    read_rules(&files).map_err(LaunchError::Project)?;
    let [file] = files;
    files::replace_path(&path, file.text.as_bytes(), FileAccess::Private).map_err(unkept)?;
    Ok(path)
}

fn lock(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).write(true).truncate(false).mode(0o600).open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}
