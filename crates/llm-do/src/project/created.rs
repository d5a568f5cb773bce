//! Which agents were made here: a signed list beside the project, never in it.
//!
//! A file in the directory of created agents can claim anything. Only a file that is recorded here, as it is recorded
//! here, is an agent that was agreed to; its record names its creator, and it never has more than the creator has
//! now.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::{AgentSpec, AllowWorkers, AttachmentPolicy, ToolsetUse};
use crate::beneath;
use crate::journal::mac::{LineMac, SigningPurpose, StateKey, sign, split};
use crate::tools::approval::{Rule, Rules, digest};

/// Where it is kept which agents were made, and who signs for it.
#[derive(Clone, Debug)]
pub struct CreatedStore {
    /// The state directory.
    pub directory: PathBuf,
    /// What signs the list.
    pub key: StateKey,
}

/// What is recorded of an agent that was made here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreationRecord {
    pub name: String,
    /// Of the file's text.
    pub digest: String,
    /// `None`: a program made it, which may give it whatever the project has.
    pub creator: Option<String>,
}

impl CreationRecord {
    /// What is recorded of an agent whose file has this text; without a creator a program made it.
    pub fn of(name: &str, text: &str, creator: Option<&str>) -> Self {
        Self { name: name.to_owned(), digest: digest([text]), creator: creator.map(str::to_owned) }
    }

    /// Whether this is the text of the file that was recorded, byte for byte.
    pub(crate) fn is_of(&self, text: &str) -> bool {
        self.digest == digest([text])
    }
}

/// The agents that were made in a project. Without a store they are those of this run.
#[derive(Debug, Default)]
pub struct CreatedAgents {
    kept: Option<CreationLog>,
    of_run: Mutex<BTreeMap<String, CreationRecord>>,
}

#[derive(Debug)]
struct CreationLog {
    file: PathBuf,
    key: StateKey,
    /// The start of the chain of signatures, made from the project: a list that was signed for another project is not
    /// valid for this one.
    start: LineMac,
}

/// A larger list is not read: no honest use creates so many agents.
const LARGEST: u64 = 16 * 1024 * 1024;

impl CreatedAgents {
    /// Those of the project at this root, as its store has them; without a store they are known for one run only.
    pub fn of(root: &Path, store: Option<&CreatedStore>) -> Self {
        Self { kept: store.and_then(|store| CreationLog::of(root, store)), of_run: Mutex::default() }
    }

    /// The last one of this name.
    pub(crate) fn made(&self, name: &str) -> io::Result<Option<CreationRecord>> {
        match &self.kept {
            Some(kept) => Ok(kept.read()?.remove(name)),
            None => Ok(self.of_run.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()),
        }
    }

    /// Records one more, which replaces an earlier one of its name; an error means that it was not recorded.
    pub fn add(&self, made: CreationRecord) -> io::Result<()> {
        match &self.kept {
            Some(kept) => kept.append(&made),
            None => {
                self.of_run.lock().unwrap_or_else(PoisonError::into_inner).insert(made.name.clone(), made);
                Ok(())
            }
        }
    }
}

impl CreationLog {
    /// A root that cannot be found has no list, since it has no agents to call.
    fn of(root: &Path, store: &CreatedStore) -> Option<Self> {
        let root = root.canonicalize().ok()?;
        // Names need not be UTF-8, and two that are not must not look alike.
        let root = root.as_os_str().as_encoded_bytes().escape_ascii().to_string();
        let name = &digest([root.as_str()])[..32];
        let file = store.directory.join("created").join(format!("{name}.jsonl"));
        let start = store.key.mac(SigningPurpose::Created, [root.as_bytes()]);
        Some(Self { file, key: store.key.clone(), start })
    }

    fn read(&self) -> io::Result<BTreeMap<String, CreationRecord>> {
        let bytes = match beneath::read_regular(&self.file, LARGEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            read => read?,
        };
        let lines = self.lines(&bytes);
        Ok(lines.made.into_iter().map(|made| (made.name.clone(), made)).collect())
    }

    fn append(&self, made: &CreationRecord) -> io::Result<()> {
        if let Some(directory) = self.file.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.file)?;
        // Another run may append as well, and each line is signed with the one before it.
        file.lock()?;
        let mut bytes = Vec::new();
        (&mut file).take(LARGEST).read_to_end(&mut bytes)?;
        let lines = self.lines(&bytes);
        let mut line = serde_json::to_string(made)?;
        let mac = self.key.next(SigningPurpose::Created, lines.last, &line.as_bytes()[..line.len() - 1]);
        sign(&mut line, mac);
        // What follows the last good line was written by another program, or is the half of a line.
        file.set_len(lines.length)?;
        file.seek(SeekFrom::Start(lines.length))?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_data()
    }

    /// The lines that were signed here, one after the other, up to the first one that was not.
    fn lines(&self, bytes: &[u8]) -> CreationLines {
        let mut lines = CreationLines { made: Vec::new(), last: self.start, length: 0 };
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some((signed, mac)) = line.strip_suffix(b"\n").and_then(split) else { break };
            let expected = self.key.next(SigningPurpose::Created, lines.last, signed);
            if expected.to_string().as_bytes() != mac {
                break;
            }
            let Ok(made) = serde_json::from_slice::<CreationRecord>(&line[..line.len() - 1]) else { break };
            lines.made.push(made);
            lines.last = expected;
            lines.length += line.len() as u64;
        }
        lines
    }
}

struct CreationLines {
    made: Vec<CreationRecord>,
    last: LineMac,
    /// Of all of them, in bytes.
    length: u64,
}

impl AgentSpec {
    /// What is left of an agent where its creator, as it is now, has less: no other tools, the stricter rule, the lower
    /// limit.
    #[must_use]
    pub(super) fn within(self, creator: &Self) -> Self {
        Self {
            tools: common_tools(self.tools, creator, &creator.tools),
            toolsets: common_tools(self.toolsets, creator, &creator.toolsets),
            allow_workers: common_workers(self.allow_workers, creator),
            limits: self.limits.lower(&creator.limits),
            attachment_policy: self.attachment_policy.stricter(&creator.attachment_policy),
            server_tools: Vec::new(),
            ..self
        }
    }
}

fn common_tools(uses: Vec<ToolsetUse>, creator: &AgentSpec, creators: &[ToolsetUse]) -> Vec<ToolsetUse> {
    let common = uses.into_iter().filter_map(|used| {
        let of_creator = creators.iter().find(|of_creator| of_creator.name == used.name)?;
        let tools = used.rules.keys().chain(of_creator.rules.keys());
        let rules = tools.filter_map(|tool| {
            let rule = stricter(used.rules.get(tool).copied(), of_creator.rules.get(tool).copied());
            rule.map(|rule| (tool.clone(), rule))
        });
        let rules: Rules = rules.collect();
        let is_of_creator = |(tool, rule): &(&String, &Rule)| of_creator.rules.get(*tool) == Some(*rule);
        let place = |(tool, _): (&String, &Rule)| {
            let own = || creator.file.to_string_lossy().into_owned();
            (tool.clone(), of_creator.rule_places.get(tool).cloned().unwrap_or_else(own))
        };
        let rule_places = rules.iter().filter(is_of_creator).map(place).collect();
        Some(ToolsetUse { rules, rule_places, source: of_creator.source.clone(), ..used })
    });
    common.collect()
}

/// The stricter of two rules. Without a rule the toolset decides, which only an `allow` can loosen: so an `allow`
/// needs both.
fn stricter(one: Option<Rule>, other: Option<Rule>) -> Option<Rule> {
    match (one, other) {
        (Some(Rule::Block), _) | (_, Some(Rule::Block)) => Some(Rule::Block),
        (Some(Rule::Ask), _) | (_, Some(Rule::Ask)) => Some(Rule::Ask),
        (Some(Rule::Allow), Some(Rule::Allow)) => Some(Rule::Allow),
        (Some(Rule::Allow) | None, None) | (None, Some(Rule::Allow)) => None,
    }
}

/// The agents that both may call. Without a list that means the agents among one's own tools, and those that were
/// created.
fn common_workers(own: Option<AllowWorkers>, creator: &AgentSpec) -> Option<AllowWorkers> {
    let is_tool = |name: &String| creator.tools.iter().chain(&creator.toolsets).any(|used| used.name == *name);
    match (own, &creator.allow_workers) {
        (own, Some(AllowWorkers::Any)) => own,
        (None | Some(AllowWorkers::Any), None) => None,
        (None | Some(AllowWorkers::Any), Some(AllowWorkers::Only(names))) => Some(AllowWorkers::Only(names.clone())),
        (Some(AllowWorkers::Only(own)), creators) => {
            let may_call = |name: &String| match creators {
                Some(AllowWorkers::Only(names)) => names.contains(name),
                Some(AllowWorkers::Any) | None => is_tool(name),
            };
            Some(AllowWorkers::Only(own.into_iter().filter(may_call).collect()))
        }
    }
}

impl AttachmentPolicy {
    fn stricter(&self, other: &Self) -> Self {
        let allowed_suffixes = match (self.allowed_suffixes.as_slice(), other.allowed_suffixes.as_slice()) {
            ([], allowed) | (allowed, []) => allowed.to_vec(),
            (own, others) => {
                let both: Vec<String> = own.iter().filter(|suffix| others.contains(suffix)).cloned().collect();
                // An empty list would allow all files, and nothing in common must allow none: no name has this
                // ending.
                if both.is_empty() { vec!["\0".to_owned()] } else { both }
            }
        };
        let mut denied_suffixes = self.denied_suffixes.clone();
        denied_suffixes.extend(other.denied_suffixes.iter().cloned());
        Self {
            max_attachments: self.max_attachments.min(other.max_attachments),
            max_total_bytes: self.max_total_bytes.min(other.max_total_bytes),
            allowed_suffixes,
            denied_suffixes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

    fn store(directory: &Path) -> CreatedStore {
        CreatedStore { directory: directory.to_owned(), key: StateKey::from_bytes([7; 32]) }
    }

    fn only_file(directory: &Path) -> PathBuf {
        std::fs::read_dir(directory.join("created")).unwrap().next().unwrap().unwrap().path()
    }

    #[test]
    fn the_last_one_of_a_name_counts_in_its_own_project() {
        let (state, root, other) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = store(state.path());
        let agents = CreatedAgents::of(root.path(), Some(&store));
        assert_eq!(agents.made("poet").unwrap(), None);
        for text in ["one", "two"] {
            agents.add(CreationRecord::of("poet", text, Some("maker"))).unwrap();
        }
        let later = CreatedAgents::of(&root.path().join("."), Some(&store));
        let made = later.made("poet").unwrap().unwrap();
        assert!(made.is_of("two") && !made.is_of("one"));
        assert_eq!(CreatedAgents::of(other.path(), Some(&store)).made("poet").unwrap(), None);
        let stranger = CreatedStore { key: StateKey::from_bytes([8; 32]), ..store.clone() };
        assert_eq!(CreatedAgents::of(root.path(), Some(&stranger)).made("poet").unwrap(), None, "another key");
        // The list of one project is none for another.
        let file = only_file(state.path());
        CreatedAgents::of(other.path(), Some(&store)).add(CreationRecord::of("x", "x", None)).unwrap();
        for entry in std::fs::read_dir(state.path().join("created")).unwrap() {
            let entry = entry.unwrap().path();
            if entry != file {
                std::fs::copy(&file, entry).unwrap();
            }
        }
        assert_eq!(CreatedAgents::of(other.path(), Some(&store)).made("poet").unwrap(), None);
        let of_run = CreatedAgents::of(root.path(), None);
        of_run.add(CreationRecord::of("poet", "three", None)).unwrap();
        assert!(of_run.made("poet").unwrap().unwrap().is_of("three"), "without a store it is known in this run");
    }

    #[test]
    fn no_byte_of_the_list_can_be_changed_and_no_line_exchanged() {
        let (state, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let agents = CreatedAgents::of(root.path(), Some(&store(state.path())));
        for name in ["one", "two", "three"] {
            agents.add(CreationRecord::of(name, name, Some("maker"))).unwrap();
        }
        let file = only_file(state.path());
        let written = std::fs::read(&file).unwrap();
        let known = || ["one", "two", "three"].map(|name| agents.made(name).unwrap().is_some());
        assert_eq!(known(), [true; 3]);
        let line_of = |at: usize| written[..at].split(|byte| *byte == b'\n').count() - 1;
        for at in 0..written.len() {
            let mut changed = written.clone();
            changed[at] ^= 1;
            std::fs::write(&file, &changed).unwrap();
            assert_eq!(known(), std::array::from_fn(|line| line < line_of(at)), "byte {at}");
        }
        let lines: Vec<&[u8]> = written.split_inclusive(|byte| *byte == b'\n').collect();
        std::fs::write(&file, [lines[1], lines[0], lines[2]].concat()).unwrap();
        assert_eq!(known(), [false; 3]);
        std::fs::write(&file, [lines[0], lines[2]].concat()).unwrap();
        assert_eq!(known(), [true, false, false]);
        // An agent that is added to a list which was changed from outside is recorded behind its last good line.
        agents.add(CreationRecord::of("three", "three", None)).unwrap();
        assert_eq!(known(), [true, false, true]);
    }

    #[test]
    fn of_two_rules_the_stricter_one_counts() {
        use Rule::{Allow, Ask, Block};
        for (one, other, expected) in [
            (None, None, None),
            (Some(Allow), None, None),
            (Some(Allow), Some(Allow), Some(Allow)),
            (Some(Allow), Some(Ask), Some(Ask)),
            (Some(Ask), None, Some(Ask)),
            (Some(Block), None, Some(Block)),
            (Some(Block), Some(Allow), Some(Block)),
            (Some(Block), Some(Ask), Some(Block)),
            (Some(Ask), Some(Ask), Some(Ask)),
        ] {
            assert_eq!(stricter(one, other), expected, "{one:?} {other:?}");
            assert_eq!(stricter(other, one), expected, "{other:?} {one:?}");
        }
    }

    #[test]
    fn of_two_limits_the_lower_one_counts_and_of_two_policies_the_stricter_one() {
        let (one, other) = (
            Limits { max_requests: Some(3), max_cost_usd: Some(2.0), ..Limits::default() },
            Limits { max_requests: Some(5), max_cost_usd: Some(1.0), max_tool_calls: Some(1), ..Limits::default() },
        );
        let lower =
            Limits { max_requests: Some(3), max_tool_calls: Some(1), max_cost_usd: Some(1.0), ..Limits::default() };
        assert_eq!((one.lower(&other), other.lower(&one)), (lower.clone(), lower));
        let policy = |allowed: &[&str], denied: &[&str], count| AttachmentPolicy {
            max_attachments: count,
            allowed_suffixes: allowed.iter().map(|suffix| (*suffix).to_owned()).collect(),
            denied_suffixes: denied.iter().map(|suffix| (*suffix).to_owned()).collect(),
            ..AttachmentPolicy::default()
        };
        let (wide, narrow) = (policy(&[], &[".exe"], 4), policy(&[".md"], &[], 2));
        assert_eq!(wide.stricter(&narrow), policy(&[".md"], &[".exe"], 2));
        assert_eq!(narrow.stricter(&policy(&[".md", ".txt"], &[], 9)), policy(&[".md"], &[], 2));
        assert_eq!(
            narrow.stricter(&policy(&[".txt"], &[], 9)).allowed_suffixes,
            ["\0"],
            "nothing in common is nothing"
        );
    }
}
