//! The files of lasting rules: whose they must be, and how they are changed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::sync::Arc;

use llm_do::RawJson;
use llm_do::approval::{DecidedBy, JudgementRecord};
use llm_do::policy::{CallOutlook, Explanation, LastingRules, RuleDraft, RuledCall};
use llm_do_launch::rules;
use llm_do_launch::settings::{Settings, Variables};

fn settings(home: &Path) -> Settings {
    let variables = BTreeMap::from([("LLM_DO_HOME".to_owned(), home.display().to_string())]);
    let mut settings = Settings::load(Variables::new(variables), Arc::new(|_| {})).unwrap();
    settings.organisation_rules = home.join("etc/rules.toml");
    settings
}

fn fact(settings: &Settings) -> String {
    rules::load(settings).map_or_else(|error| error.fact(), |_| "they count".to_owned())
}

#[test]
fn the_organisations_file_is_roots_alone_and_tightens() {
    let home = tempfile::tempdir().unwrap();
    let settings = settings(home.path());
    assert!(rules::load(&settings).unwrap().is_empty(), "there need not be any");
    fs::create_dir(home.path().join("etc")).unwrap();
    let file = home.path().join("etc/rules.toml");
    fs::write(&file, "[[rule]]\nask = \"publish\"\n\n[[rule]]\nallow = \"publish\"\n").unwrap();
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(&file, 0o644);
    if fs::metadata(&file).unwrap().uid() != 0 {
        assert!(fact(&settings).contains("it is not root's"), "{}", fact(&settings));
        return;
    }
    set_mode(&file, 0o646);
    assert!(fact(&settings).contains("others may write it"), "{}", fact(&settings));
    set_mode(&file, 0o644);
    set_mode(&home.path().join("etc"), 0o777);
    assert!(fact(&settings).contains("its directory is not root's alone"), "{}", fact(&settings));
    set_mode(&home.path().join("etc"), 0o755);
    chown(&file, Some(65534), None).unwrap();
    assert!(fact(&settings).contains("it is not root's"), "{}", fact(&settings));
    chown(&file, Some(0), None).unwrap();
    // It asks a person, whatever answers otherwise; its `allow` means nothing.
    let (project, path, arguments) = (Path::new("/p"), ["main".to_owned()], RawJson::of(&serde_json::json!({})));
    let in_force = LastingRules::in_force(rules::load(&settings).unwrap(), project, Some(&rules::today()));
    let call = RuledCall { tool: "publish", path: &path, arguments: Some(&arguments), subject: None };
    let record: JudgementRecord = serde_json::from_value(serde_json::json!({"verdict": "allow"})).unwrap();
    let explained = Explanation::again(&record, call, &in_force);
    assert_eq!((explained.outlook, explained.by), (CallOutlook::Ask, DecidedBy::Person), "{explained:?}");
}

#[test]
fn rules_are_added_all_or_none_while_others_add_theirs() {
    let home = tempfile::tempdir().unwrap();
    let settings = settings(home.path());
    let path = ["main".to_owned()];
    let draft = |number: usize| {
        let arguments = RawJson::of(&serde_json::json!({"n": number, "text": "\"\\\n\u{1b}'"}));
        let call = RuledCall { tool: "send", path: &path, arguments: Some(&arguments), subject: None };
        RuleDraft::exact(call, "main", Path::new("/p")).unwrap().until("2099-12-31")
    };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (settings, draft) = (&settings, &draft);
            scope.spawn(move || {
                (0..5).for_each(|number| drop(rules::add(settings, &[draft(thread * 5 + number)]).unwrap()));
            });
        }
    });
    let all = rules::load(&settings).unwrap();
    assert_eq!(all.len(), 40, "none was lost");
    let file = rules::own_file(&settings).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let before = fs::read(&file).unwrap();
    let refused = rules::change(&settings, |text| Ok(format!("{text}\n[[rule]]\n")));
    assert!(refused.is_err() && fs::read(&file).unwrap() == before, "what cannot be read is not kept");
}
