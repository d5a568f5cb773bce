use std::path::Path;

use llm_do::model::name::{ModelChoices, ModelName};
use llm_do::project::Project;

use super::*;
use crate::config::Config;
use crate::style::width;

fn surveyed(directory: &Path, env: &[&str]) -> SurveyedProject {
    let names: Vec<String> = env.iter().map(|name| format!("\"{name}\"")).collect();
    let manifest = format!(
        r#"{{"version": 1, "entry": {{"agent": "main"}}, "worker_files": ["main.worker"], "env": [{}]}}"#,
        names.join(",")
    );
    std::fs::write(directory.join("project.json"), manifest).unwrap();
    std::fs::write(directory.join("main.worker"), "---\nname: main\n---\nx\n").unwrap();
    let models = ModelChoices { flag: Some(ModelName::parse("ollama:q").unwrap()), ..ModelChoices::default() };
    Project::load(directory).unwrap().surveyed(&models, None).unwrap()
}

#[test]
fn pages_fit_the_screen_and_only_the_last_can_be_agreed_to() {
    let directory = tempfile::tempdir().unwrap();
    let long = "L".repeat(300);
    let names: Vec<String> = (0..50).map(|name| format!("N{name}")).chain([long.clone()]).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let items = items(&surveyed(directory.path(), &names));
    let digest = TrustDigest::of_list(&items);
    let list = List { project: Path::new("clone"), items: &items, is_rest: false, digest: digest.clone() };
    for (rows, columns) in [(24, 80), (10, 40), (5, 20), (1, 1)] {
        let pages = list.pages(rows, columns, WITH_PLACE);
        let (last, others) = pages.split_last().unwrap();
        assert!(last.is_last && last.text.contains("trust") && !others.is_empty());
        assert!(others.iter().all(|page| !page.is_last && !page.text.contains("digest")), "{rows} × {columns}");
        let widest = pages.iter().flat_map(|page| page.text.lines()).map(width).max().unwrap();
        assert!(widest <= columns.max(20), "{widest} of {columns}");
        if rows >= 10 {
            assert!(pages.iter().all(|page| page.text.lines().count() < rows), "{rows} × {columns}");
        }
        let shown: String = pages.iter().flat_map(|page| page.text.chars()).filter(|c| *c == 'L').collect();
        assert_eq!(shown, long, "nothing is cut off");
    }
    let whole = list.whole();
    assert_eq!(whole.lines().count(), 53);
    assert!(whole.ends_with(&format!("-- 51 of 51, digest {digest} --\n")), "{whole}");
}

#[test]
fn what_is_kept_is_for_a_place_and_what_was_shown() {
    let (home, one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let environment = Environment::of([("LLM_DO_HOME", home.path().to_str().unwrap())]);
    let state = State::of(&environment, &Config::default()).unwrap();
    let given = |directory: &Path, env: &[&str]| {
        standing(&surveyed(directory, env), &Answerers::default(), &state).unwrap().is_given
    };
    assert!(given(one.path(), &[]) && !home.path().join("state").exists(), "nothing is made for nothing");
    assert!(!given(one.path(), &["A"]));
    keep_written(&surveyed(one.path(), &["A"]), &state).unwrap();
    assert!(given(one.path(), &["A"]) && !given(one.path(), &["A", "B"]) && !given(two.path(), &["A"]));
    keep_written(&surveyed(one.path(), &["A", "B"]), &state).unwrap();
    assert!(given(one.path(), &["A"]) && given(one.path(), &["B"]), "what was agreed to stays so");
    let other = tempfile::tempdir().unwrap();
    let elsewhere = Environment::of([("LLM_DO_HOME", other.path().to_str().unwrap())]);
    let stranger = State::of(&elsewhere, &Config::default()).unwrap();
    std::fs::create_dir_all(other.path().join("state")).unwrap();
    std::fs::rename(home.path().join("state/trust"), other.path().join("state/trust")).unwrap();
    assert!(
        !standing(&surveyed(one.path(), &["A"]), &Answerers::default(), &stranger).unwrap().is_given,
        "another key"
    );
}

#[test]
fn a_place_is_private_while_nobody_else_can_write_it() {
    use std::os::unix::fs::PermissionsExt as _;
    assert!(!is_private(Path::new("/tmp")) && !is_private(Path::new("/nonexistent")));
    assert!(is_private(Path::new("/usr")));
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o770)).unwrap();
    assert!(!is_private(directory.path()), "a group is others");
}

#[test]
fn consent_is_given_for_now_or_for_a_list() {
    let digest = "9f31c0de2b7704a1c55e8d20f6b3917a";
    let list = TrustDigest::parse(digest).map(Consent::List);
    assert_eq!(Consent::typed(None).unwrap(), None);
    assert_eq!(Consent::typed(Some(NOW)).unwrap(), Some(Consent::Everything));
    assert_eq!(Consent::typed(Some(digest)).unwrap(), list);
    let variable = |value: &str| {
        Consent::of_variable(&Environment::of([("LLM_DO_TRUST", value)])).map_err(|failure| failure.code())
    };
    assert_eq!((variable("1"), variable(digest), variable("")), (Ok(Some(Consent::Everything)), Ok(list), Ok(None)));
    for wrong in ["0", "yes", "9f31c0de2b77"] {
        assert_eq!((variable(wrong), Consent::typed(Some(wrong)).is_err()), (Err(2), true), "{wrong}");
    }
}
