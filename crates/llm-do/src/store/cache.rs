//! Replies that count again in other runs: a signed file for each request, those that were not used for longest go first.
//!
//! Others may write to a cache, so a file counts only if it is ours to the last byte and lies where we put it. What is missing,
//! damaged or a stranger's is asked again: nothing is lost but money.

use std::cmp::Reverse;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::files;
use crate::beneath::{self, FileAccess};
use crate::event::brief;
use crate::journal::call::RecordedReply;
use crate::journal::digest::digest;
use crate::journal::mac::{SigningPurpose, StateKey};
use crate::message::Usage;
use crate::replies::{KnownReply, ReplyCache, ReplyCaching, RequestIdentity};
use crate::syntax::table::is_name;

/// A reply is far smaller.
const LARGEST: u64 = 16 << 20;
const MAC_DIGITS: usize = 32;
/// In the directory of a project: its path.
const PROJECT: &str = "project";
/// In the directory of an agent: a line for each reply that counted again.
const SAVED: &str = "saved";
/// A longer list of what was saved becomes one line.
const LONGEST_SAVED: u64 = 64 * 1024;
/// In the root: when it was last looked whether there is too much.
const SWEPT: &str = "swept";
const SWEEP_EVERY: Duration = Duration::from_hours(24);
/// The same within a process, in replies that it kept.
const SWEEP_AFTER: u64 = 512;
/// So long that may take.
const PATIENCE: Duration = Duration::from_millis(50);
/// So many replies are looked at to say what has changed.
const MOST_COMPARED: usize = 256;

/// Where all replies are that are kept, and what signs them.
#[derive(Clone, Debug)]
pub struct ReplyStore {
    /// Where they lie.
    pub directory: PathBuf,
    /// What signs them.
    pub key: StateKey,
    /// How many bytes they may take.
    pub most: u64,
}

/// The replies that are kept for one project.
#[derive(Debug)]
struct ProjectReplies {
    store: ReplyStore,
    directory: PathBuf,
    root: String,
    /// Where each provider is asked, as far as that may differ.
    addresses: String,
    explains: bool,
    kept: AtomicU64,
}

/// What is kept for one agent.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptReplies {
    /// The root of the project.
    pub project: String,
    /// The agent.
    pub agent: String,
    /// How many replies there are.
    pub replies: u64,
    /// How many bytes they take.
    pub bytes: u64,
    /// What was not asked again so far.
    pub saved: Usage,
}

#[derive(Serialize, Deserialize)]
struct KeptReply {
    /// In milliseconds since 1970.
    at: u64,
    asked: RequestIdentity,
    reply: RecordedReply,
}

#[derive(Serialize, Deserialize)]
struct SavedLine(#[serde(with = "brief")] Usage);

impl ReplyStore {
    /// Those of a project, for agents of these names. Equal requests to a provider that is asked elsewhere are other requests.
    pub fn for_agents(
        &self,
        agents: impl IntoIterator<Item = String>,
        root: &Path,
        addresses: String,
        explains: bool,
    ) -> ReplyCaching {
        ReplyCaching::of(Arc::new(self.of_project(root, addresses, explains)), agents)
    }

    fn of_project(&self, root: &Path, addresses: String, explains: bool) -> ProjectReplies {
        let root = root.to_string_lossy().into_owned();
        let directory = self.directory.join(&digest([root.as_str()])[..16]);
        ProjectReplies { store: self.clone(), directory, root, addresses, explains, kept: AtomicU64::new(0) }
    }

    /// What is kept for each agent, by project and name.
    pub fn all(&self) -> Vec<KeptReplies> {
        let mut all: Vec<KeptReplies> = self.agents().filter_map(|(project, agent)| kept_in(project, &agent)).collect();
        all.sort_by(|one, other| (&one.project, &one.agent).cmp(&(&other.project, &other.agent)));
        all
    }

    /// Forgets what is kept for the agents of this name, or for all; gives how many replies that were.
    pub fn forget(&self, agent: Option<&str>) -> io::Result<u64> {
        let mut forgotten = 0;
        for (project, directory) in self.agents() {
            if agent.is_some_and(|agent| directory.file_name().is_none_or(|name| name != agent)) {
                continue;
            }
            forgotten += kept_in(project, &directory).map_or(0, |kept| kept.replies);
            fs::remove_dir_all(&directory)?;
        }
        Ok(forgotten)
    }

    /// The directories of all agents, each with the root of its project.
    fn agents(&self) -> impl Iterator<Item = (String, PathBuf)> + use<> {
        let projects = directories(&self.directory).filter_map(|project| {
            let root = files::read_whole(&project.join(PROJECT), 64 * 1024).ok()?;
            Some((String::from_utf8(root).ok()?, project))
        });
        projects.flat_map(|(root, project)| {
            let agents: Vec<PathBuf> = directories(&project).collect();
            agents.into_iter().map(move |agent| (root.clone(), agent))
        })
    }

    /// Removes what was not used for longest if there is too much. Whoever is in a hurry leaves the rest to the next one.
    fn sweep(&self) -> io::Result<()> {
        let (began, mut found) = (Instant::now(), Vec::new());
        beneath::replace_path(&self.directory.join(SWEPT), b"", FileAccess::Private)?;
        for (_, agent) in self.agents() {
            for file in replies(&agent) {
                if let Ok(about) = file.metadata() {
                    found.push((about.modified()?, about.len(), file));
                }
            }
        }
        let mut all: u64 = found.iter().map(|(_, bytes, _)| bytes).sum();
        found.sort_unstable();
        for (_, bytes, file) in found {
            if all <= self.most || began.elapsed() > PATIENCE {
                break;
            }
            fs::remove_file(file)?;
            all -= bytes;
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        let swept = fs::metadata(self.directory.join(SWEPT)).and_then(|about| about.modified()).ok();
        swept.and_then(|swept| swept.elapsed().ok()).is_none_or(|age| age > SWEEP_EVERY)
    }

    /// What was kept in this file under this name, if it is ours.
    fn read(&self, file: &Path, name: &str) -> Option<KeptReply> {
        let whole = files::read_whole(file, LARGEST).ok()?;
        let (mac, content) = whole.split_at_checked(MAC_DIGITS)?;
        if mac != self.mac(name, content).as_bytes() {
            return None;
        }
        serde_json::from_slice(content).ok()
    }

    fn mac(&self, name: &str, content: &[u8]) -> String {
        self.key.mac(SigningPurpose::Reply, [name.as_bytes(), content]).to_string()
    }
}

fn kept_in(project: String, directory: &Path) -> Option<KeptReplies> {
    let agent = directory.file_name()?.to_str()?.to_owned();
    let (mut count, mut bytes) = (0, 0);
    for about in replies(directory).filter_map(|file| file.metadata().ok()) {
        count += 1;
        bytes += about.len();
    }
    Some(KeptReplies { project, agent, replies: count, bytes, saved: saved(&directory.join(SAVED)) })
}

/// The sum of what was saved. A line that cannot be read is left out.
fn saved(file: &Path) -> Usage {
    let text = files::read_whole(file, LARGEST).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<SavedLine>(line).ok());
    lines.fold(Usage::default(), |sum, SavedLine(saved)| sum.plus(&saved))
}

fn directories(above: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(above).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

/// The files of an agent that are replies.
fn replies(agent: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(agent).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_reply = |file: &PathBuf| file.file_name().is_some_and(|name| name.len() == 64);
    entries.filter(is_reply)
}

impl ProjectReplies {
    /// What a request is called. The name says also where its provider is asked.
    fn name(&self, asked: &RequestIdentity) -> String {
        digest([asked.key().as_str(), &self.addresses])
    }

    /// Names of agents are names of directories; of others nothing is kept.
    fn of_agent(&self, agent: &str) -> Option<PathBuf> {
        is_name(agent).then(|| self.directory.join(agent))
    }

    fn write(&self, asked: &RequestIdentity, reply: &RecordedReply) -> io::Result<()> {
        let Some(directory) = self.of_agent(&asked.agent) else { return Ok(()) };
        files::make_private(&directory)?;
        let about = self.directory.join(PROJECT);
        if !about.exists() {
            beneath::replace_path(&about, self.root.as_bytes(), FileAccess::Private)?;
        }
        let name = self.name(asked);
        let kept = KeptReply { at: now(), asked: asked.clone(), reply: reply.clone() };
        let content = serde_json::to_vec(&kept)?;
        let whole = [self.store.mac(&name, &content).as_bytes(), &content].concat();
        beneath::replace_path(&directory.join(name), &whole, FileAccess::Private)?;
        let kept = self.kept.fetch_add(1, Ordering::Relaxed);
        if kept.is_multiple_of(SWEEP_AFTER) && (kept > 0 || self.store.is_due()) { self.store.sweep() } else { Ok(()) }
    }

    /// Notes what was not asked again. It is told to people and decides nothing, so one that cannot be noted is left out.
    fn note_saved(directory: &Path, usage: &Usage) -> io::Result<()> {
        let path = directory.join(SAVED);
        let file = files::open_lines(&path)?;
        files::lock_lines(&file, &path)?;
        let mut line = serde_json::to_vec(&SavedLine(*usage))?;
        line.push(b'\n');
        if file.metadata()?.len() > LONGEST_SAVED {
            let sum = serde_json::to_vec(&SavedLine(saved(&path).plus(usage)))?;
            file.set_len(0)?;
            return (&file).write_all(&[&sum[..], b"\n"].concat());
        }
        files::append_lines(&file, &line)
    }

    /// What has changed since the request that is nearest to this one.
    fn explanation(&self, asked: &RequestIdentity, directory: &Path) -> String {
        let agent = &asked.agent;
        let mut files: Vec<(SystemTime, PathBuf)> =
            replies(directory).filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file))).collect();
        files.sort_unstable_by(|one, other| other.cmp(one));
        files.truncate(MOST_COMPARED);
        let others = files.iter().filter_map(|(_, file)| self.store.read(file, file.file_name()?.to_str()?));
        let differences = others.map(|kept| {
            let is_longer = kept.asked.said.len() != asked.said.len();
            (asked.changes_since(&kept.asked), is_longer, kept.at)
        });
        // Of those in which least is different the newest, and rather one that comes at the same point of a conversation.
        let nearest = differences.min_by_key(|(changes, is_longer, at)| (changes.len(), *is_longer, Reverse(*at)));
        match nearest {
            None => format!("cache: `{agent}` is asked: nothing is kept for it yet"),
            Some((changes, ..)) if changes.is_empty() => {
                format!("cache: `{agent}` is asked: its provider was asked at another address before")
            }
            Some((changes, ..)) => {
                let is_few = changes.len() == 1 && !changes[0].contains(", ");
                let (changes, have) = (joined(&changes), if is_few { "has" } else { "have" });
                format!("cache: `{agent}` is asked: {changes} {have} changed since the nearest request that is kept")
            }
        }
    }
}

/// `a`, `a and b`, `a, b and c`.
fn joined(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [word] => word.clone(),
        [words @ .., last] => format!("{} and {last}", words.join(", ")),
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl ReplyCache for ProjectReplies {
    fn find(&self, asked: &RequestIdentity) -> KnownReply {
        let Some(directory) = self.of_agent(&asked.agent) else { return KnownReply::Unknown(None) };
        let name = self.name(asked);
        let file = directory.join(&name);
        match self.store.read(&file, &name).filter(|kept| kept.asked == *asked) {
            Some(kept) => {
                let _ = Self::note_saved(&directory, &kept.reply.0.usage);
                // It was used: others go before it.
                let used = files::open_regular(&file, OpenOptions::new().append(true));
                let _ = used.and_then(|file| file.set_modified(SystemTime::now()));
                KnownReply::Is(Box::new(kept.reply))
            }
            None => KnownReply::Unknown(self.explains.then(|| self.explanation(asked, &directory))),
        }
    }

    fn keep(&self, asked: &RequestIdentity, reply: &RecordedReply) {
        // It is asked again then.
        let _ = self.write(asked, reply);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::journal::parts::PartNames;
    use crate::message::{Finish, Reply, ReplyPart, TextPart};
    use crate::replies::MessageIdentity;

    fn store(directory: &Path, key: u8) -> ReplyStore {
        ReplyStore { directory: directory.join("a/replies"), key: StateKey::from_bytes([key; 32]), most: 1 << 30 }
    }

    fn asked(agent: &str, input: &str) -> RequestIdentity {
        let part = |name: &str| name.repeat(32);
        let parts = PartNames { instructions: part("1"), tools: part("2"), output: None, settings: part("3") };
        let said = vec![MessageIdentity { what: "the input".into(), digest: input.into() }];
        RequestIdentity { agent: agent.into(), model: "anthropic:m".into(), parts, said }
    }

    fn reply(text: &str) -> RecordedReply {
        let usage = Usage { requests: 1, input_tokens: 7, cost_usd: Some(0.25), ..Usage::default() };
        let parts = vec![ReplyPart::Text(TextPart { text: text.to_owned(), private: None })];
        RecordedReply(Reply { parts, model: "anthropic:m".into(), finish: Finish::Stop, finish_reason: None, usage })
    }

    fn found(replies: &ProjectReplies, asked: &RequestIdentity) -> Option<String> {
        match replies.find(asked) {
            KnownReply::Is(reply) => Some(reply.0.text()),
            KnownReply::Unknown(_) => None,
        }
    }

    #[test]
    fn a_reply_counts_again_for_the_same_request_of_the_same_project_and_user() {
        let cache = tempfile::tempdir().unwrap();
        let ours = store(cache.path(), 1);
        let replies = ours.of_project(Path::new("/p"), "a".into(), false);
        assert_eq!(found(&replies, &asked("one", "x")), None);
        replies.keep(&asked("one", "x"), &reply("yes"));
        assert_eq!(found(&replies, &asked("one", "x")).as_deref(), Some("yes"));
        let elsewhere = ours.of_project(Path::new("/p"), "b".into(), false);
        let others = [
            (&replies, asked("one", "y")),
            (&replies, asked("two", "x")),
            (&elsewhere, asked("one", "x")),
            (&ours.of_project(Path::new("/q"), "a".into(), false), asked("one", "x")),
            (&store(cache.path(), 2).of_project(Path::new("/p"), "a".into(), false), asked("one", "x")),
        ];
        for (replies, asked) in &others {
            assert_eq!(found(replies, asked), None, "{replies:?} {asked:?}");
        }
        // A name that is no name of an agent names no directory.
        replies.keep(&asked("../../x", "x"), &reply("no"));
        assert_eq!(found(&replies, &asked("../../x", "x")), None);
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_not_ours_to_the_last_byte_is_asked_again() {
        let cache = tempfile::tempdir().unwrap();
        let replies = store(cache.path(), 1).of_project(Path::new("/p"), String::new(), false);
        let (here, there) = (asked("one", "x"), asked("one", "y"));
        replies.keep(&here, &reply("yes"));
        replies.keep(&there, &reply("no"));
        let file = |asked: &RequestIdentity| replies.of_agent("one").unwrap().join(replies.name(asked));
        assert_eq!(file(&here).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let whole = fs::read(file(&here)).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(file(&here), &changed).unwrap();
            assert_eq!(found(&replies, &here), None, "byte {at}");
            fs::write(file(&here), &whole[..at]).unwrap();
            assert_eq!(found(&replies, &here), None, "cut at {at}");
        }
        fs::copy(file(&there), file(&here)).unwrap();
        assert_eq!(found(&replies, &here), None, "the reply to another request");
        fs::remove_file(file(&here)).unwrap();
        std::os::unix::fs::symlink(file(&there), file(&here)).unwrap();
        assert_eq!(found(&replies, &here), None, "a link");
        replies.keep(&here, &reply("again"));
        assert_eq!(found(&replies, &here).as_deref(), Some("again"));
        assert_eq!(found(&replies, &there).as_deref(), Some("no"));
    }

    #[test]
    fn what_is_kept_is_listed_with_what_it_saved_and_forgotten() {
        let cache = tempfile::tempdir().unwrap();
        let ours = store(cache.path(), 1);
        assert_eq!((ours.all(), ours.forget(None).unwrap()), (Vec::new(), 0));
        let replies = ours.of_project(Path::new("/p"), String::new(), false);
        for input in ["x", "y", "z"] {
            replies.keep(&asked("one", input), &reply("r"));
        }
        replies.keep(&asked("two", "x"), &reply("r"));
        // More than fit into the list of what was saved.
        for _ in 0..3000 {
            assert!(found(&replies, &asked("one", "x")).is_some());
        }
        let all = ours.all();
        assert_eq!(
            all.iter().map(|kept| (kept.agent.as_str(), kept.replies)).collect::<Vec<_>>(),
            [("one", 3), ("two", 1)]
        );
        let KeptReplies { project, saved, bytes, .. } = &all[0];
        assert_eq!((project.as_str(), saved.requests, saved.cost_usd), ("/p", 3000, Some(750.0)));
        assert!(*bytes > 300, "{bytes}");
        let list = replies.of_agent("one").unwrap().join(SAVED);
        assert!(list.metadata().unwrap().len() <= LONGEST_SAVED + 100);
        assert_eq!(ours.forget(Some("three")).unwrap(), 0);
        assert_eq!(ours.forget(Some("one")).unwrap(), 3);
        assert_eq!((found(&replies, &asked("one", "x")), found(&replies, &asked("two", "x")).is_some()), (None, true));
        assert_eq!(ours.forget(None).unwrap(), 1);
        assert_eq!(ours.all(), []);
    }

    #[test]
    fn those_that_were_not_used_for_longest_go() {
        let cache = tempfile::tempdir().unwrap();
        let replies = store(cache.path(), 1).of_project(Path::new("/p"), String::new(), false);
        let inputs: Vec<String> = (0..9).map(|number| number.to_string()).collect();
        let long_ago = SystemTime::now() - Duration::from_hours(1000);
        for (age, input) in (0_u32..).zip(&inputs) {
            replies.keep(&asked("one", input), &reply("r"));
            let file = replies.of_agent("one").unwrap().join(replies.name(&asked("one", input)));
            fs::File::open(file).unwrap().set_modified(long_ago + Duration::from_hours(1) * age).unwrap();
        }
        assert!(found(&replies, &asked("one", "0")).is_some(), "which makes it the newest");
        let one = replies.store.all()[0].bytes / 9;
        ReplyStore { most: 4 * one + one / 2, ..replies.store.clone() }.sweep().unwrap();
        let left: Vec<&String> =
            inputs.iter().filter(|input| found(&replies, &asked("one", input)).is_some()).collect();
        assert_eq!(left, ["0", "6", "7", "8"]);
    }

    #[test]
    fn it_is_said_what_has_changed_since_the_nearest_request() {
        let cache = tempfile::tempdir().unwrap();
        let ours = store(cache.path(), 1);
        let replies = ours.of_project(Path::new("/p"), String::new(), true);
        let why = |asked: &RequestIdentity| match replies.find(asked) {
            KnownReply::Unknown(Some(why)) => why,
            found => panic!("{found:?}"),
        };
        let first = asked("one", "x");
        assert_eq!(why(&first), "cache: `one` is asked: nothing is kept for it yet");
        replies.keep(&first, &reply("r"));
        let changed = RequestIdentity { model: "anthropic:n".into(), ..first.clone() };
        assert_eq!(
            why(&changed),
            "cache: `one` is asked: the model has changed since the nearest request that is kept"
        );
        let tools = PartNames { tools: "9".into(), settings: "9".into(), ..first.parts.clone() };
        let changed = RequestIdentity { parts: tools, ..asked("one", "y") };
        let expected = "cache: `one` is asked: the tools, the settings and the input have changed since the nearest request that is kept";
        assert_eq!(why(&changed), expected);
        let mut longer = first.clone();
        longer.said.push(MessageIdentity { what: "the result of read_file".into(), digest: "1".into() });
        replies.keep(&longer, &reply("r"));
        longer.said[1].digest = "2".into();
        let expected =
            "cache: `one` is asked: the result of read_file has changed since the nearest request that is kept";
        assert_eq!(why(&longer), expected);
        let elsewhere = ours.of_project(Path::new("/p"), "b".into(), true);
        assert!(
            matches!(elsewhere.find(&first), KnownReply::Unknown(Some(why)) if why.ends_with("another address before"))
        );
    }
}
