//! What single keys ask of the user who runs a project: the functions that the key tables name. Pure.

use crate::journal::digest::digest;
use crate::model::scripted;
use crate::project::manifest;
use crate::project::worker::{PythonModule, SchemaSource, parse_reference};
use crate::syntax::claim::{Claim, ClaimClass, ClaimSubject, WrittenKey};
use crate::syntax::diagnostic::Located;
use crate::syntax::table::{located_text, texts_of};
use crate::syntax::tree::{Node, NodeKind};
use crate::tools::approval::Rule;
use crate::tools::policy::manifest_rule;

type Claims = Vec<Located<Claim>>;

/// `python_files`: each of them runs when the project starts.
pub(crate) fn python_files(written: &WrittenKey<'_>, claims: &mut Claims) {
    let files = texts_of(written.value).into_iter();
    claims.extend(
        files.map(|file| Claim::new(ClaimClass::Run, ClaimSubject::Python(file.value)).of("Python").at(file.span)),
    );
}

/// `schema_in_ref`, `schema_out_ref`: a class is found by running what defines it.
pub(crate) fn schema(written: &WrittenKey<'_>, claims: &mut Claims) {
    let Some(text) = located_text(written.value) else { return };
    let Some(SchemaSource::Python(class)) = parse_reference(&text) else { return };
    let subject = match class.value.module {
        PythonModule::File(file) => ClaimSubject::Python(file),
        PythonModule::Importable(module) => ClaimSubject::Module(module),
    };
    claims.push(Claim::new(ClaimClass::Run, subject).of("Python").at(written.span));
}

/// `env`: variables that code of the project sees.
pub(crate) fn env(written: &WrittenKey<'_>, claims: &mut Claims) {
    for name in texts_of(written.value) {
        let words = format!("{}, given to Python and servers", name.value);
        claims.push(Claim::text(ClaimClass::ReachOut, words).of("env").at(name.span));
    }
}

/// `export`: agents that other programs call.
pub(crate) fn export(written: &WrittenKey<'_>, claims: &mut Claims) {
    for agent in texts_of(written.value) {
        let words = format!("`{}`, called as a tool by other programs", agent.value);
        claims.push(Claim::text(ClaimClass::ReachOut, words).of("export").at(agent.span));
    }
}

/// `approval_mode`: only one of its values loosens.
pub(crate) fn approval_mode(written: &WrittenKey<'_>, claims: &mut Claims) {
    if is_text(written.value, "approve_all") {
        let words = "every question: it is answered with yes";
        claims.push(Claim::text(ClaimClass::Allow, words).of("runtime").at(written.span));
    }
}

/// `root`: one outside the project.
pub(crate) fn root(written: &WrittenKey<'_>, claims: &mut Claims) {
    let Some(root) = located_text(written.value).filter(|root| root.value.starts_with('/')) else { return };
    let is_written = written.beside.get("mode").is_some_and(|mode| is_text(mode, "rw"));
    let words = format!("{}, {}", root.value, if is_written { "read and written" } else { "read" });
    let bounds = ["suffixes", "max_file_bytes"].map(|key| written.beside.get(key).map(Node::to_json));
    let claim = Claim::text(ClaimClass::ReachOut, words).with(bounds.map(Option::unwrap_or_default));
    claims.push(claim.of(owner("files", written)).at(root.span));
}

/// `rules`: those that allow, and those of programs that are no program of the system. The first rule that matches decides,
/// so what was agreed to about one holds only while the rules before it are the same, and what commands may write.
pub(crate) fn rules(written: &WrittenKey<'_>, claims: &mut Claims) {
    let NodeKind::List(rules) = &written.value.kind else { return };
    let mut before = written.beside.get("directory").map(Node::to_json).unwrap_or_default();
    for rule in rules {
        before = digest([before.as_str(), &without(rule, &["match", "not_match"])]);
        let Some(words) = value(rule, "pattern").map(pattern) else { continue };
        let is_path = words.first().is_some_and(|program| program.starts_with('/'));
        let approval = value(rule, "approval").and_then(rule_of);
        let understood = value(rule, "i_understand").is_some_and(|value| matches!(value.kind, NodeKind::Bool(true)));
        let remark = if understood { ", which can run any program" } else { "" }.to_owned();
        let claim = match approval {
            Some(Rule::Allow) => {
                let class = if is_path { ClaimClass::Run } else { ClaimClass::Allow };
                Claim::new(class, ClaimSubject::Command { words, remark }).with([before.clone()])
            }
            Some(Rule::Ask) if is_path => {
                let remark = super::IF_YES.to_owned();
                Claim::new(ClaimClass::Run, ClaimSubject::Command { words, remark })
            }
            Some(Rule::Ask | Rule::Block) | None => continue,
        };
        claims.push(claim.of(owner("shell", written)).at(rule.span));
    }
}

/// `rules` of the manifest: those that allow.
pub(crate) fn lasting_rules(written: &WrittenKey<'_>, claims: &mut Claims) {
    let NodeKind::List(rules) = &written.value.kind else { return };
    for node in rules {
        if let Some((Rule::Allow, shown)) = manifest_rule(node) {
            claims.push(Claim::text(ClaimClass::Allow, shown).of("rules").at(node.span));
        }
    }
}

/// `default`: whatever no rule matches.
pub(crate) fn default(written: &WrittenKey<'_>, claims: &mut Claims) {
    if is_text(written.value, Rule::Allow.word()) {
        let rules = written.beside.get("rules").map(Node::to_json).unwrap_or_default();
        let claim = Claim::text(ClaimClass::Allow, "every command that no rule matches").with([rules]);
        claims.push(claim.of(owner("shell", written)).at(written.span));
    }
}

/// `write`: directories that commands may write.
pub(crate) fn write(written: &WrittenKey<'_>, claims: &mut Claims) {
    for path in texts_of(written.value) {
        let words = format!("{}, written by commands", path.value);
        claims.push(Claim::text(ClaimClass::ReachOut, words).of(owner("shell", written)).at(path.span));
    }
}

pub(crate) fn network(written: &WrittenKey<'_>, claims: &mut Claims) {
    if matches!(written.value.kind, NodeKind::Bool(true)) {
        let claim = Claim::text(ClaimClass::ReachOut, "the network, by commands");
        claims.push(claim.of(owner("shell", written)).at(written.span));
    }
}

/// `mcp`: a program that runs, or an address that is spoken to. A setting can make a program do anything, so its value
/// counts; it may be a secret, so it is not shown. Of a variable only the name is known here.
pub(crate) fn server(written: &WrittenKey<'_>, claims: &mut Claims) {
    let literals = [without(written.value, &["timeout_seconds", "task_seconds", "auth"])];
    let text = |key| value(written.value, key).and_then(located_text);
    let claim = match (text("command"), text("url")) {
        (Some(command), _) => {
            let arguments = value(written.value, "args").map(texts_of).unwrap_or_default();
            let words = std::iter::once(command).chain(arguments).map(|word| word.value).collect();
            let remark = format!("{}{}", settings(value(written.value, "env")), fence(value(written.value, "fence")));
            Claim::new(ClaimClass::Run, ClaimSubject::Command { words, remark })
        }
        (None, Some(url)) => {
            let words = format!("{}{}", url.value, settings(value(written.value, "headers")));
            Claim::text(ClaimClass::ReachOut, words)
        }
        (None, None) => return,
    };
    claims.push(claim.with(literals).of(owner("mcp", written)).at(written.span));
    if let (Some(node), Some(url)) = (value(written.value, "auth"), text("url")) {
        auth(node, &url.value, &owner("mcp", written), claims);
    }
}

/// `auth` of a server: what its server is told of the user, and where secrets come from.
fn auth(node: &Node, url: &str, owner: &str, claims: &mut Claims) {
    let is_own = value(node, "grant").is_some_and(|grant| is_text(grant, "client_credentials"));
    let words = if is_own { format!("{url}, logged in to by itself") } else { format!("{url}, with your login there") };
    let claim = Claim::text(ClaimClass::ReachOut, words).with([without(node, &["client_id", "scopes"])]);
    claims.push(claim.of(owner).at(node.span));
    for key in ["client_secret", "assertion"] {
        let Some(source) = value(node, key) else { continue };
        if let Some(variable) = value(source, "from_env").and_then(located_text) {
            let words = format!("{}, sent to the authorization server of {url}", variable.value);
            claims.push(Claim::text(ClaimClass::ReachOut, words).of(owner).at(variable.span));
        }
        if let Some(command) = value(source, "command") {
            let words = texts_of(command).into_iter().map(|word| word.value).collect();
            let remark = ", which prints a secret".to_owned();
            let claim = Claim::new(ClaimClass::Run, ClaimSubject::Command { words, remark });
            claims.push(claim.of(owner).at(command.span));
        }
    }
}

/// `, behind a fence (reads /srv/data; no network)`.
fn fence(node: Option<&Node>) -> String {
    let words =
        |node: &Node| format!(", behind a fence ({})", manifest::enclosure(&manifest::FENCE.fields(node)).words());
    node.map(words).unwrap_or_default()
}

/// ` with TOKEN, USER from LOGNAME`.
fn settings(node: Option<&Node>) -> String {
    let Some(NodeKind::Map(entries)) = node.map(|node| &node.kind) else { return String::new() };
    let named = entries.iter().map(|entry| match value(&entry.value, "from_env").and_then(located_text) {
        Some(variable) if variable.value != entry.key.value => format!("{} from {}", entry.key.value, variable.value),
        Some(_) | None => entry.key.value.clone(),
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { String::new() } else { format!(" with {}", named.join(", ")) }
}

/// `python` of a toolset: code in the place of an agent, unless the agent alone answers. It runs behind a fence, and what was
/// agreed to about one function is said of no other.
pub(crate) fn stand_in(written: &WrittenKey<'_>, claims: &mut Claims) {
    let is_resting = written.beside.get("mode").is_none_or(|mode| is_text(mode, "agent"));
    let Some(python) = located_text(written.value).filter(|_| !is_resting) else { return };
    let (file, function) = python.value.rsplit_once(':').unwrap_or((&python.value, ""));
    let claim = Claim::new(ClaimClass::Run, ClaimSubject::StandIn(file.to_owned())).with([function.to_owned()]);
    claims.push(claim.of(owner("code", written)).at(written.span));
}

/// `approval` of a toolset: rules for the tools of a variant, or one word for code in the place of an agent.
pub(crate) fn toolset_approval(written: &WrittenKey<'_>, claims: &mut Claims) {
    match (written.beside.get("python"), is_text(written.value, Rule::Allow.word())) {
        (Some(_), true) => {
            let claim = Claim::text(ClaimClass::Allow, format!("calls of `{}`", written.name()));
            claims.push(claim.of(owner("code", written)).at(written.span));
        }
        (Some(_), false) => {}
        (None, _) => variant(written, claims),
    }
}

/// `approval` of a toolset with `use`.
fn variant(written: &WrittenKey<'_>, claims: &mut Claims) {
    let Some(toolset) = written.beside.text("use") else { return };
    for (tool, span) in allowed(written.value) {
        let subject = ClaimSubject::ToolOf { toolset: toolset.value.clone(), tool };
        claims.push(Claim::new(ClaimClass::Allow, subject).of(owner("toolset", written)).at(span));
    }
}

/// `approval` of an agent.
pub(crate) fn approval(written: &WrittenKey<'_>, claims: &mut Claims) {
    let tools = allowed(written.value);
    claims.extend(tools.map(|(tool, span)| Claim::new(ClaimClass::Allow, ClaimSubject::Tool(tool)).at(span)));
}

/// `model`: a script of the project answers instead of one.
pub(crate) fn model(written: &WrittenKey<'_>, claims: &mut Claims) {
    let models = texts_of(written.value);
    let scripts = models.iter().filter_map(scripted::script_of);
    claims.extend(
        scripts.map(|script| Claim::new(ClaimClass::Answer, ClaimSubject::Script(script.value)).at(written.span)),
    );
}

/// `skills`: those outside the project.
pub(crate) fn skills(written: &WrittenKey<'_>, claims: &mut Claims) {
    for directory in texts_of(written.value).into_iter().filter(|directory| directory.value.starts_with('/')) {
        let words = format!("{}, skills as instructions", directory.value);
        claims.push(Claim::text(ClaimClass::ReachOut, words).at(directory.span));
    }
}

/// `agents_md`: a file that is not the project's own.
pub(crate) fn agents_md(written: &WrittenKey<'_>, claims: &mut Claims) {
    if is_text(written.value, "cwd") {
        let words = "AGENTS.md of the working directory, as instructions";
        claims.push(Claim::text(ClaimClass::ReachOut, words).at(written.span));
    }
}

/// `server_side_tools`: what a model reads can be sent out by them, unseen.
pub(crate) fn server_side_tools(written: &WrittenKey<'_>, claims: &mut Claims) {
    let NodeKind::List(tools) = &written.value.kind else { return };
    for tool in tools {
        let Some(kind) = value(tool, "tool_type").and_then(located_text) else { continue };
        let claim = Claim::text(ClaimClass::ReachOut, format!("{}, run by the provider", kind.value));
        claims.push(claim.with([tool.to_json()]).at(tool.span));
    }
}

/// Tools whose rule is `allow`.
fn allowed(rules: &Node) -> impl Iterator<Item = (String, crate::syntax::diagnostic::Span)> + '_ {
    let entries = match &rules.kind {
        NodeKind::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    let allowing = entries.iter().filter(|entry| is_text(&entry.value, Rule::Allow.word()));
    allowing.map(|entry| (entry.key.value.clone(), entry.key.span))
}

fn owner(kind: &str, written: &WrittenKey<'_>) -> String {
    format!("{kind} `{}`", written.name())
}

fn value<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    match &node.kind {
        NodeKind::Map(entries) => entries.iter().find(|entry| entry.key.value == key).map(|entry| &entry.value),
        _ => None,
    }
}

/// A mapping as JSON, without some of its keys: a key that is new to the format is covered unless it is named here.
fn without(node: &Node, keys: &[&str]) -> String {
    let NodeKind::Map(entries) = &node.kind else { return node.to_json() };
    let kept = entries.iter().filter(|entry| !keys.contains(&entry.key.value.as_str())).cloned().collect();
    Node { span: node.span, kind: NodeKind::Map(kept) }.to_json()
}

/// As shells read it.
fn pattern(node: &Node) -> Vec<String> {
    match &node.kind {
        NodeKind::Text(words) => words.split_whitespace().map(str::to_owned).collect(),
        _ => texts_of(node).into_iter().map(|word| word.value).collect(),
    }
}

fn rule_of(node: &Node) -> Option<Rule> {
    located_text(node).and_then(|word| Rule::parse(&word.value))
}

fn is_text(node: &Node, word: &str) -> bool {
    matches!(&node.kind, NodeKind::Text(text) if text == word)
}
