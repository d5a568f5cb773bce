//! What is added to the instructions of an agent: an `AGENTS.md`, and the list of its skills. A skill is a directory with a
//! `SKILL.md`, whose front matter says what it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::worker::{AgentsMd, split_front_matter};
use super::{LoadedWorker, Program, Project, ToolsetUse, lexical_join};
use crate::beneath;
use crate::escape::visible_start;
use crate::syntax::diagnostic::{Diagnostic, Diagnostics, FileId, Located, Sources, Span};
use crate::syntax::table::is_name;
use crate::syntax::tree::{self, LARGEST_FILE, Node, NodeKind};
use crate::tools::approval::Rules;
use crate::tools::skill::SKILL_FILE;
use crate::tools::source::{Base, ToolsetSource};

/// The file that tells agents of a directory.
pub(super) const AGENTS_MD: &str = "AGENTS.md";
const LONGEST_AGENTS_MD: usize = 32 * 1024;
/// What all skills of an agent may say about themselves together.
const LONGEST_LIST: usize = 16 * 1024;
const LONGEST_DESCRIPTION: usize = 1_024;
/// More skills than people write; those of other directories are not looked at all.
const MOST_SKILLS: usize = 1_000;

/// The name of the toolset that reads skills.
const SKILLS: &str = "skills";

/// What a model is told of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skill {
    name: String,
    description: String,
}

/// What lies outside of a project and was read since it is trusted.
#[derive(Clone, Debug, Default)]
pub(super) struct OutsideTexts {
    /// By the directories that they lie in.
    skills: BTreeMap<PathBuf, Vec<Skill>>,
    /// The `AGENTS.md` of the working directory.
    agents_md: Option<String>,
}

impl Project {
    /// Directories of skills, wherever they are.
    pub(super) fn skill_directories(&self) -> impl Iterator<Item = PathBuf> {
        self.workers.iter().flat_map(|loaded| {
            let found = loaded.worker.skills.iter().filter_map(|listed| directory_of(loaded, listed));
            found.map(|directory| match directory {
                Base::Project(path) => self.root.join(path),
                Base::Absolute(path) => path,
                Base::WorkingDirectory => self.directory.base().to_owned(),
            })
        })
    }

    /// What an agent is told: its instructions, and what is added to them.
    pub(super) fn told(&self, loaded: &LoadedWorker) -> String {
        self.told_with(loaded, &self.outside)
    }

    fn told_with(&self, loaded: &LoadedWorker, outside: &OutsideTexts) -> String {
        let worker = &loaded.worker;
        let agents_md = worker.agents_md.as_ref().and_then(|which| match which.value {
            AgentsMd::Project => {
                self.references.get(Path::new(AGENTS_MD)).map(|file| self.sources.get(*file).text.as_str())
            }
            AgentsMd::WorkingDirectory => outside.agents_md.as_deref(),
        });
        let agents_md = agents_md.map(|text| format!("# {AGENTS_MD}\n\n{}", text.trim()));
        let skills = list(&self.skills_of(loaded, outside, &mut Diagnostics::default()));
        let parts = [Some(worker.instructions.clone()), agents_md, skills];
        let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        parts.join("\n\n")
    }

    /// Its skills, in the order of their directories; of two with one name the first is meant.
    fn skills_of(&self, loaded: &LoadedWorker, outside: &OutsideTexts, problems: &mut Diagnostics) -> Vec<Skill> {
        let mut skills: Vec<Skill> = Vec::new();
        for listed in &loaded.worker.skills {
            let found = match directory_of(loaded, listed) {
                Some(Base::Project(directory)) => self.own_skills(&directory, problems),
                Some(Base::Absolute(directory)) => outside.skills.get(&directory).cloned().unwrap_or_default(),
                Some(Base::WorkingDirectory) | None => Vec::new(),
            };
            for skill in found {
                if skills.iter().any(|other| other.name == skill.name) {
                    let fact =
                        format!("two skills of agent `{}` are called `{}`", loaded.worker.name.value, skill.name);
                    problems.push(Diagnostic::error(listed.span, fact).hint("rename the directory of one"));
                } else {
                    skills.push(skill);
                }
            }
        }
        skills
    }

    /// Those of a directory of the project, which were read with its other files.
    fn own_skills(&self, directory: &Path, problems: &mut Diagnostics) -> Vec<Skill> {
        let is_skill = |path: &Path| {
            path.file_name().is_some_and(|name| name == SKILL_FILE)
                && path.parent().and_then(Path::parent) == Some(directory)
        };
        let files = self.references.iter().filter(|(path, _)| is_skill(path));
        files
            .filter_map(|(path, file)| {
                let name = path.parent()?.file_name()?.to_str()?;
                skill(name, *file, &self.sources.get(*file).text, problems)
            })
            .collect()
    }

    /// Reads what agents are told from outside of the project, which needs trust.
    pub(super) fn outside_texts(&self) -> OutsideTexts {
        let mut outside = OutsideTexts::default();
        let is_of_directory = |which: &Located<AgentsMd>| which.value == AgentsMd::WorkingDirectory;
        if self.workers.iter().any(|loaded| loaded.worker.agents_md.as_ref().is_some_and(is_of_directory)) {
            outside.agents_md = agents_md_of(self.directory.base());
        }
        for loaded in &self.workers {
            for listed in &loaded.worker.skills {
                if let Some(Base::Absolute(directory)) = directory_of(loaded, listed) {
                    outside.skills.entry(directory).or_insert_with_key(|directory| skills_in(directory));
                }
            }
        }
        outside
    }

    /// Adds it to what the agents of a linked program are told.
    pub(super) fn tell_outside(&self, outside: &OutsideTexts, program: &mut Program) {
        if outside.agents_md.is_none() && outside.skills.is_empty() {
            return;
        }
        for loaded in &self.workers {
            if let Some(agent) = program.agents.get_mut(&loaded.worker.name.value) {
                Arc::make_mut(agent).instructions = self.told_with(loaded, outside);
            }
        }
    }

    /// Reads what lies outside, for this program and for those that are linked later.
    pub(super) fn read_outside(&mut self, program: &mut Program) {
        self.outside = self.outside_texts();
        self.tell_outside(&self.outside, program);
    }
}

impl Project {
    /// The toolset that reads the skills of an agent, if it has some. What is wrong with what it is told is reported.
    pub(super) fn skill_toolset(&self, loaded: &LoadedWorker, problems: &mut Diagnostics) -> Option<ToolsetUse> {
        let worker = &loaded.worker;
        self.check_agents_md(worker.agents_md.as_ref(), problems);
        let last = worker.skills.last()?;
        let length = list(&self.skills_of(loaded, &self.outside, problems)).map_or(0, |list| list.len());
        if length > LONGEST_LIST {
            let fact = format!(
                "the skills of agent `{}` say {length} bytes about themselves, and {LONGEST_LIST} are the most",
                worker.name.value
            );
            problems.push(Diagnostic::error(last.span, fact).hint("shorten their descriptions, or name fewer"));
        }
        let directories = worker.skills.iter().filter_map(|listed| directory_of(loaded, listed)).collect();
        let source = Arc::new(ToolsetSource::Skills(directories));
        Some(ToolsetUse { name: SKILLS.to_owned(), source, rules: Rules::new(), rule_places: BTreeMap::new() })
    }

    /// What is too long for instructions is said, not cut.
    fn check_agents_md(&self, which: Option<&Located<AgentsMd>>, problems: &mut Diagnostics) {
        let Some(Located { value: AgentsMd::Project, span }) = which else { return };
        let file = self.references.get(Path::new(AGENTS_MD));
        let length = file.map_or(0, |file| self.sources.get(*file).text.len());
        if length > LONGEST_AGENTS_MD {
            let fact = format!("`{AGENTS_MD}` has {length} bytes, and {LONGEST_AGENTS_MD} are the most");
            problems.push(Diagnostic::error(*span, fact));
        }
    }
}

/// Where a directory of skills lies; `None` if it leads out of the project, which is reported where it is read.
fn directory_of(loaded: &LoadedWorker, listed: &Located<String>) -> Option<Base> {
    let path = Path::new(&listed.value);
    if path.is_absolute() {
        return Some(Base::Absolute(path.to_owned()));
    }
    Some(Base::Project(lexical_join(loaded.directory(), path)?))
}

/// What a model is told of skills.
fn list(skills: &[Skill]) -> Option<String> {
    let line = |skill: &Skill| format!("- {}: {}\n", skill.name, skill.description);
    let lines: String = skills.iter().map(line).collect();
    let lines = lines.trim_end();
    (!skills.is_empty())
        .then(|| format!("# Skills\n\nBefore you do what one of these is about, read it with `load_skill`.\n\n{lines}"))
}

/// A skill by the name of its directory.
fn skill(name: &str, file: FileId, text: &str, problems: &mut Diagnostics) -> Option<Skill> {
    let whole = tree::Text::whole(file, text);
    let start = Span { file, start: whole.offset, end: whole.offset };
    let (front, _) = split_front_matter(whole, problems)?;
    let node = tree::parse_yaml(front, problems)?;
    if let Some((written, span)) = text_of(&node, "name").filter(|(written, _)| written != name) {
        let fact = format!("the skill in `{name}` calls itself `{}`", visible_start(&written, 80));
        problems.push(Diagnostic::error(span, fact).hint(format!("write `name: {name}`, or rename the directory")));
    }
    let Some((description, span)) = text_of(&node, "description").filter(|(text, _)| !text.trim().is_empty()) else {
        let problem = Diagnostic::error(start, format!("the skill `{name}` has no `description`"));
        problems.push(problem.hint("say in one sentence what it is about, and when to read it"));
        return None;
    };
    if description.len() > LONGEST_DESCRIPTION {
        let fact = format!("the description has {} bytes, and {LONGEST_DESCRIPTION} are the most", description.len());
        problems.push(Diagnostic::error(span, fact));
    }
    Some(Skill { name: name.to_owned(), description: in_one_line(&description) })
}

fn text_of(node: &Node, key: &str) -> Option<(String, Span)> {
    let NodeKind::Map(entries) = &node.kind else { return None };
    let value = &entries.iter().find(|entry| entry.key.value == key)?.value;
    match &value.kind {
        NodeKind::Text(text) => Some((text.clone(), value.span)),
        _ => None,
    }
}

/// A line of a list cannot look like two.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The skills of a directory outside of the project. Those that cannot be read are none: they are not the project's to mend.
fn skills_in(directory: &Path) -> Vec<Skill> {
    let Ok(opened) = Dir::open_ambient_dir(directory, ambient_authority()) else { return Vec::new() };
    let Ok(entries) = opened.entries() else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let names: BTreeSet<String> = names.filter(|name| is_name(name)).take(MOST_SKILLS).collect();
    let mut sources = Sources::default();
    let mut silent = Diagnostics::default();
    let mut length = 0;
    let read = |name: &String| {
        let path = Path::new(name).join(SKILL_FILE);
        let text = String::from_utf8(beneath::read(&opened, &path, LARGEST_FILE as u64).ok()?).ok()?;
        let file = sources.add(path, String::new());
        skill(name, file, &text, &mut silent)
    };
    // As many as there is room for: what other people's directories hold is no mistake of the project.
    let fits = |skill: &Skill| {
        length += skill.name.len() + skill.description.len() + 5;
        length + 200 <= LONGEST_LIST
    };
    names.iter().filter_map(read).take_while(fits).collect()
}

/// The `AGENTS.md` of a directory that is not the project's, as much of it as there is room for.
fn agents_md_of(directory: &Path) -> Option<String> {
    let opened = Dir::open_ambient_dir(directory, ambient_authority()).ok()?;
    let bytes = beneath::read(&opened, Path::new(AGENTS_MD), LONGEST_AGENTS_MD as u64 + 1).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    if bytes.len() <= LONGEST_AGENTS_MD {
        return Some(text.into_owned());
    }
    let end = text.floor_char_boundary(LONGEST_AGENTS_MD);
    Some(format!("{}\n[cut: the file is longer than {LONGEST_AGENTS_MD} bytes]", &text[..end]))
}
