use std::collections::BTreeSet;

use super::*;
use crate::model::name::ModelName;
use crate::project::manifest::MANIFEST;
use crate::project::worker::WORKER;
use crate::syntax::claim::Bearing;
use crate::syntax::table::{Shape, Table};
use crate::tools::working_directory::WorkingDirectory;

struct Files(tempfile::TempDir);

impl Files {
    /// A manifest with these keys, and one agent with those.
    fn of(manifest: &str, worker: &str) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let manifest = if manifest.is_empty() { String::new() } else { format!(",\n{manifest}") };
        let listed = if manifest.contains("agent_files") {
            "\"allow_cli_input\": true"
        } else {
            "\"worker_files\": [\"main.worker\"]"
        };
        files.put("project.json", &format!(r#"{{"version": 1, "entry": {{"agent": "main"}}, {listed}{manifest}}}"#));
        files.write("main.worker", &format!("---\nname: main\n{worker}\n---\nx\n"))
    }

    fn write(self, name: &str, text: &str) -> Self {
        self.put(name, text);
        self
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn surveyed(&self) -> Result<SurveyedProject, Report> {
        let models =
            ModelChoices { required: Some(ModelName::parse("anthropic:q").unwrap()), ..ModelChoices::default() };
        Project::load(self.0.path()).unwrap().surveyed(&models, None)
    }

    fn items(&self) -> Vec<TrustItem> {
        items(&self.surveyed().unwrap_or_else(|report| panic!("{report}")))
    }

    fn lines(&self) -> Vec<String> {
        let line =
            |item: &TrustItem| format!("{} | {} | {} | {}", item.class.words(), item.words, item.place, item.source);
        self.items().iter().map(line).collect()
    }

    fn digest(&self) -> TrustDigest {
        TrustDigest::of_list(&self.items())
    }
}

fn shell(rules: &str) -> String {
    format!(r#""toolsets": {{"sh": {{"shell": {{"rules": [{rules}]}}}}}}"#)
}

#[test]
fn a_project_of_prompts_needs_no_trust() {
    let manifest = r#""runtime": {"approval_mode": "prompt", "max_depth": 3, "limits": {"max_requests": 5}},
        "toolsets": {"notes": {"filesystem": {"root": "notes", "mode": "rw"}},
            "sh": {"shell": {"rules": [{"pattern": "make", "approval": "ask"}, {"pattern": "rm", "approval": "block"}]}},
            "few": {"use": "notes", "prefix": "n_", "approval": {"write_file": "ask"}}}"#;
    let worker = "description: y\nschema_in: {type: object}\nlocked: true\ntoolsets: [shell_readonly, filesystem_cwd, few]\n\
                  approval: {write_file: block, edit_file: ask}\nmodel_settings: {temperature: 1}\nlimits: {max_requests: 2}";
    assert_eq!(Files::of(manifest, worker).lines(), [""; 0]);
}

#[test]
fn whatever_runs_loosens_or_reaches_out_is_listed_once_and_the_most_dangerous_first() {
    let manifest = r#""python_files": ["tools.py"], "env": ["HOME_BASE"],
"runtime": {"approval_mode": "approve_all"},
"toolsets": {
"etc": {"filesystem": {"root": "/etc", "mode": "ro"}},
"sh": {"shell": {"rules": [{"pattern": "env", "approval": "allow", "i_understand": true},
{"pattern": "/opt/tool", "approval": "ask"}, {"pattern": "wc -l", "approval": "allow"}], "write": ["/var"], "network": true}},
"hub": {"mcp": {"command": "npx", "args": ["-y", "hub\u001b"], "env": {"TOKEN": {"from_env": "HUB_TOKEN"}, "A": "literal"}}},
"far": {"mcp": {"url": "https://example.com/mcp", "headers": {"Authorization": {"from_env": "GITHUB_TOKEN"}}}},
"free": {"use": "etc", "approval": {"read_file": "allow"}}}"#;
    let manifest = manifest.replacen("\"env\"", "\"agent_files\": [\"main.worker\", \"told.worker\"], \"env\"", 1);
    let worker = "schema_in_ref: tools.py:Topic\ntoolsets: [filesystem_cwd]\n\
                  approval: {write_file: allow}\nserver_side_tools: [{tool_type: web_fetch}]";
    let files =
        Files::of(&manifest, worker).write("s.yaml", "- say: x\n").write("tools.py", "").write("lib/help.py", "");
    let files = files.write("told.worker", "---\nname: told\nmodel: scripted:s.yaml\n---\nx\n");
    let files = files.write(".venv/bin/python", "").write("lib/data.txt", "").write(".hidden/x.py", "");
    let expected = [
        "run | tools.py of this project | project.json:2 | Python",
        "run | [\"/opt/tool\"], if you say yes | project.json:7 | shell `sh`",
        "run | [\"npx\", \"-y\", \"hub\\u001b\"] with TOKEN from HUB_TOKEN, A | project.json:8 | mcp `hub`",
        "run | lib/help.py of this project, if it is imported |  | Python",
        "run | the Python interpreter in .venv, and what is installed there |  | Python",
        "allow | every question: it is answered with yes | project.json:3 | runtime",
        "allow | [\"env\"], which can run any program | project.json:6 | shell `sh`",
        "allow | [\"wc\", \"-l\"] | project.json:7 | shell `sh`",
        "allow | read_file of `etc` | project.json:10 | toolset `free`",
        "allow | write_file in the working directory | main.worker:5 | agent `main`",
        "reach out | HOME_BASE, given to Python and servers | project.json:2 | env",
        "reach out | /etc, read | project.json:5 | files `etc`",
        "reach out | /var, written by commands | project.json:7 | shell `sh`",
        "reach out | the network, by commands | project.json:7 | shell `sh`",
        "reach out | https://example.com/mcp with Authorization from GITHUB_TOKEN | project.json:9 | mcp `far`",
        "reach out | web_fetch, run by the provider | main.worker:6 | agent `main`",
        "answer | from a script instead of a model | told.worker:3 | s.yaml",
    ];
    let found = files.lines();
    assert_eq!(found, expected, "{found:#?}");
}

/// What is agreed to is what was shown: anything that makes it more asks again.
#[test]
fn a_list_is_another_one_when_what_it_stands_for_is_another() {
    let hub = |mcp: &str| Files::of(&format!(r#""toolsets": {{"hub": {{"mcp": {{{mcp}}}}}}}"#), "");
    let variants = [
        hub(r#""command": "sh", "args": ["-c", "echo", "hi; touch X"]"#),
        hub(r#""command": "sh", "args": ["-c", "echo hi; touch X"]"#),
        hub(r#""command": "sh", "args": ["-c", "echo", "hi;", "touch X"]"#),
        hub(r#""command": "sh", "args": ["-c", "echo", "hi; touch X"], "env": {"A": "1"}"#),
        hub(r#""command": "sh", "args": ["-c", "echo", "hi; touch X"], "env": {"A": "2"}"#),
        hub(r#""command": "sh", "args": ["-c", "echo", "hi; touch X"], "env": {"A": {"from_env": "B"}}"#),
        hub(r#""url": "https://a.example""#),
        Files::of(&shell(r#"{"pattern": "git", "approval": "allow", "i_understand": true}"#), ""),
        Files::of(
            &shell(
                r#"{"pattern": "git push", "approval": "block"}, {"pattern": "git", "approval": "allow", "i_understand": true}"#,
            ),
            "",
        ),
        Files::of(
            &shell(
                r#"{"pattern": "git push", "approval": "ask"}, {"pattern": "git", "approval": "allow", "i_understand": true}"#,
            ),
            "",
        ),
        Files::of(
            r#""toolsets": {"sh": {"shell": {"directory": "ro", "rules": [{"pattern": "git", "approval": "allow", "i_understand": true}]}}}"#,
            "",
        ),
        Files::of("", "toolsets: [filesystem_cwd]\napproval: {write_file: allow}"),
        Files::of("", "toolsets: [filesystem_project]\napproval: {write_file: allow}"),
        Files::of("", "server_side_tools: [{tool_type: web_search, allowed_domains: [a.example]}]"),
        Files::of("", "server_side_tools: [{tool_type: web_search}]"),
    ];
    let digests: BTreeSet<TrustDigest> = variants.iter().map(Files::digest).collect();
    assert_eq!(digests.len(), variants.len());
}

#[test]
fn the_contents_of_files_count_and_their_places_do_not() {
    let manifest = r#""python_files": ["tools.py"], "env": ["A"],
        "toolsets": {"hub": {"mcp": {"command": "node", "args": ["--config=hub.toml", "server.js"], "timeout_seconds": 3}},
            "sh": {"shell": {"rules": [{"pattern": "wc -l", "approval": "allow", "match": "wc -l"}]}}}"#;
    let files = Files::of(manifest, "model: scripted:s.yaml").write("s.yaml", "- say: x\n").write("tools.py", "x = 1");
    let files = files.write("lib/help.py", "y = 1").write("hub.toml", "").write("server.js", "");
    let before = files.digest();
    for (name, text) in [("s.yaml", "- say: y\n"), ("tools.py", "x = 2"), ("lib/help.py", "y = 2")].into_iter().chain([
        ("hub.toml", "z"),
        ("server.js", "z"),
        ("new.py", ""),
        ("lib/native.so", ""),
    ]) {
        let old = std::fs::read(files.0.path().join(name)).ok();
        files.put(name, text);
        assert_ne!(files.digest(), before, "{name}");
        match old {
            Some(old) => std::fs::write(files.0.path().join(name), old).unwrap(),
            None => std::fs::remove_file(files.0.path().join(name)).unwrap(),
        }
        assert_eq!(files.digest(), before, "{name} as it was");
    }
    for (name, text) in [("notes.txt", "x"), (".git/hook.py", "x"), ("node_modules/a/a.py", "x"), (".venv2/x.py", "x")]
    {
        files.put(name, text);
        assert_eq!(files.digest(), before, "{name}");
    }
    let manifest = std::fs::read_to_string(files.0.path().join("project.json")).unwrap();
    files.put(
        "project.json",
        &format!(
            "\n\n{}",
            manifest.replace(": 3", ": 4").replace("\"match\"", "\"not_match\"").replace("\"wc -l\"}", "\"ls\"}")
        ),
    );
    files.put("main.worker", "---\nname: main\n# a comment\nmodel: scripted:s.yaml\n---\nother words\n");
    assert_eq!(files.digest(), before, "neither lines nor prompts nor bounds");
    let elsewhere = Files::of(r#""env": ["A"]"#, "");
    assert_eq!(elsewhere.digest(), Files::of(r#""env": ["A"]"#, "").digest(), "the same list at two places");
}

#[test]
fn a_program_of_the_project_runs() {
    let rule = r#"{"pattern": "sh tool.sh", "approval": "allow", "i_understand": true}"#;
    let files = Files::of(&shell(rule), "").write("tool.sh", "a");
    let line = "run | [\"sh\", \"tool.sh\"], which can run any program, unasked | project.json:2 | shell `sh`";
    assert_eq!(files.lines(), [line]);
    let before = files.digest();
    files.put("tool.sh", "b");
    assert_ne!(files.digest(), before);
    let system = |approval: &str| {
        Files::of(&shell(&format!(r#"{{"pattern": "/usr/bin/wc", "approval": "{approval}"}}"#)), "").lines()
    };
    assert_eq!(system("allow"), ["allow | [\"/usr/bin/wc\"] | project.json:2 | shell `sh`"], "as by its name");
    assert_eq!(system("ask"), [""; 0]);
}

#[test]
fn too_many_modules_are_trusted_by_their_place() {
    let files = Files::of(r#""python_files": ["tools.py"]"#, "").write("tools.py", "");
    for module in 0..contents::MOST_MODULES {
        files.put(&format!("many/m{module}.py"), "");
    }
    let words = "run | whatever Python modules this directory contains: too many to tell changes |  | Python";
    assert_eq!(files.lines(), ["run | tools.py of this project | project.json:2 | Python", words]);
    let before = files.digest();
    files.put("many/m1.py", "changed");
    assert_eq!(files.digest(), before, "that is what was said");
    files.put("tools.py", "changed");
    assert_ne!(files.digest(), before);
}

#[test]
fn code_in_the_place_of_an_agent_is_agreed_to_by_its_content_unless_it_rests() {
    let files = |mode: &str, code: &str| {
        let manifest =
            format!(r#""toolsets": {{"main": {{"python": "main.py:main", "mode": "{mode}", "approval": "allow"}}}}"#);
        Files::of(&manifest, "").write("main.py", code)
    };
    for mode in ["shadow", "fallback", "code"] {
        let expected = [
            "run | main.py of this project, behind a fence (no network) | project.json:2 | code `main`",
            "allow | calls of `main` | project.json:2 | code `main`",
        ];
        assert_eq!(files(mode, "x = 1").lines(), expected);
        assert_ne!(files(mode, "x = 1").digest(), files(mode, "x = 2").digest());
    }
    assert_eq!(files("agent", "x = 1").lines(), ["allow | calls of `main` | project.json:2 | code `main`"]);
    assert_eq!(files("agent", "x = 1").digest(), files("agent", "x = 2").digest());
    let imported = files("code", "import other").write("other.py", "");
    assert_eq!(imported.lines()[1], "run | other.py of this project, if it is imported |  | Python");
}

#[test]
fn links_that_lead_back_end() {
    let files = Files::of(r#""python_files": ["tools.py"]"#, "").write("tools.py", "").write("a/b/x.py", "");
    std::os::unix::fs::symlink("../..", files.0.path().join("a/b/up")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", files.0.path().join("a/zero.py")).unwrap();
    assert_eq!(files.lines()[1], "run | a/b/x.py of this project, if it is imported |  | Python");
}

#[test]
fn more_items_than_anybody_reads_are_a_mistake() {
    let names = |count: usize| (0..count).map(|name| format!("\"N{name}\"")).collect::<Vec<_>>().join(",");
    let files = |count| Files::of(&format!(r#""env": [{}]"#, names(count)), "");
    assert_eq!(files(MOST_ITEMS).items().len(), MOST_ITEMS);
    let Err(report) = files(MOST_ITEMS + 1).surveyed() else { panic!("one too many") };
    assert!(report.to_string().contains("1001 things in this project need trust"), "{report}");
}

#[test]
fn a_project_is_trusted_by_whoever_agreed_to_all_of_it() {
    let files = Files::of(r#""env": ["A", "B"]"#, "");
    let (items, digest) = (files.items(), files.digest());
    let trusted = |agreement: Agreement<'_>| files.surveyed().unwrap().trusted(agreement).is_ok();
    let some: BTreeSet<TrustDigest> = items[..1].iter().map(|item| item.digest.clone()).collect();
    let all: BTreeSet<TrustDigest> = items.iter().map(|item| item.digest.clone()).collect();
    assert!(trusted(Agreement::Everything) && trusted(Agreement::List(&digest)) && trusted(Agreement::Items(&all)));
    assert!(!trusted(Agreement::Items(&some)) && !trusted(Agreement::List(&items[0].digest)));
    assert_eq!(TrustDigest::parse(&digest.to_string().to_uppercase()), Some(digest));
    for text in ["", "1", "9f31c0de2b77", &"0".repeat(33), &"g".repeat(32)] {
        assert_eq!(TrustDigest::parse(text), None, "{text}");
    }
}

/// What lies outside is read once the project is trusted, and what lies inside needs no trust.
#[test]
fn what_agents_are_told_from_outside_of_the_project_needs_trust() {
    let skill = "---\ndescription: How to do it\n---\n";
    let files = Files::of("", "skills: [skills]\nagents_md: project")
        .write("skills/mine/SKILL.md", skill)
        .write("AGENTS.md", "Be kind.");
    assert_eq!(files.lines(), [""; 0]);
    let told = files.surveyed().unwrap().linked().program.agents["main"].instructions.clone();
    assert!(told.contains("Be kind.") && told.contains("- mine: How to do it"), "{told}");

    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(outside.path().join("skills/theirs")).unwrap();
    std::fs::write(outside.path().join("skills/theirs/SKILL.md"), skill).unwrap();
    std::fs::write(outside.path().join("AGENTS.md"), "Be quick.").unwrap();
    let theirs = outside.path().join("skills").display().to_string();
    let files = Files::of("", &format!("skills: [{theirs}]\nagents_md: cwd"));
    assert_eq!(
        files.lines(),
        [
            format!("reach out | {theirs}, skills as instructions | main.worker:3 | agent `main`"),
            "reach out | AGENTS.md of the working directory, as instructions | main.worker:4 | agent `main`".to_owned(),
        ]
    );
    let directory = WorkingDirectory::at(outside.path()).unwrap();
    let models = ModelChoices { required: Some(ModelName::parse("anthropic:q").unwrap()), ..ModelChoices::default() };
    let surveyed = Project::load_from(files.0.path(), &directory).unwrap().surveyed(&models, None).unwrap();
    assert_eq!(surveyed.linked().program.agents["main"].instructions, "x");
    let trusted = surveyed.trusted(Agreement::Everything).unwrap_or_else(|_| panic!("it was agreed to"));
    let told = |trusted: &TrustedProject| trusted.program().agents["main"].instructions.clone();
    let first = told(&trusted);
    assert!(first.starts_with("x\n\n# AGENTS.md\n\nBe quick.\n\n# Skills\n\n"), "{first}");
    assert!(first.ends_with("- theirs: How to do it"), "{first}");
    assert_eq!(told(&trusted.relinked(&models, None).unwrap()), first, "linked again, it is the same");
}

/// A key that is neutral as a whole must not hide one that is not.
#[test]
fn nothing_inside_of_a_neutral_key_asks_for_anything() {
    fn tables(shape: &'static Shape) -> Vec<&'static Table> {
        match shape {
            Shape::Object(table) => vec![table],
            Shape::Map { of } | Shape::List { of, .. } => tables(of),
            Shape::AnyOf(shapes) => shapes.iter().flat_map(tables).collect(),
            _ => Vec::new(),
        }
    }
    fn check(table: &'static Table, is_neutral: bool) {
        for key in table.keys {
            let bears = !matches!(key.bearing, Bearing::Neutral);
            assert!(!(is_neutral && bears), "`{}` in {}", key.name, table.what);
            let is_inside = matches!(key.bearing, Bearing::Inside);
            assert!(!is_inside || !tables(&key.shape).is_empty(), "`{}` in {}", key.name, table.what);
            for table in tables(&key.shape) {
                check(table, is_neutral || !bears);
            }
        }
    }
    check(&MANIFEST, false);
    check(&WORKER, false);
}
