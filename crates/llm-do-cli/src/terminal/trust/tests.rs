use crate::environment::Environment;
use std::path::Path;

use llm_do::{ModelChoices, ModelName, Project};

use super::*;
use crate::terminal::style::width;

fn surveyed(directory: &Path, env: &[&str]) -> SurveyedProject {
    let names: Vec<String> = env.iter().map(|name| format!("\"{name}\"")).collect();
    let manifest = format!(
        r#"{{"version": 1, "entry": {{"agent": "main"}}, "worker_files": ["main.worker"], "env": [{}]}}"#,
        names.join(",")
    );
    std::fs::write(directory.join("project.json"), manifest).unwrap();
    std::fs::write(directory.join("main.worker"), "---\nname: main\n---\nx\n").unwrap();
    let models = ModelChoices { required: Some(ModelName::parse("ollama:q").unwrap()), ..ModelChoices::default() };
    Project::load(directory).unwrap().surveyed(&models, None).unwrap()
}

#[test]
fn pages_fit_the_screen_and_only_the_last_can_be_agreed_to() {
    let directory = tempfile::tempdir().unwrap();
    let long = "L".repeat(300);
    let names: Vec<String> = (0..50).map(|name| format!("N{name}")).chain([long.clone()]).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let items = llm_do::trust::items(&surveyed(directory.path(), &names));
    let digest = TrustDigest::of_list(&items);
    let list = TrustList { items, is_rest: false, digest: digest.clone(), offers_place: true };
    let list = List::of(Path::new("clone"), &list);
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
fn consent_is_given_for_now_or_for_a_list() {
    let digest = "9f31c0de2b7704a1c55e8d20f6b3917a";
    let list = TrustDigest::parse(digest).map(Consent::List);
    assert_eq!(typed(None).unwrap(), None);
    assert_eq!(typed(Some(NOW)).unwrap(), Some(Consent::Everything));
    assert_eq!(typed(Some(digest)).unwrap(), list);
    let variable = |value: &str| Environment::of([("LLM_DO_TRUST", value)]).consent().map_err(|failure| failure.code());
    assert_eq!((variable("1"), variable(digest), variable("")), (Ok(Some(Consent::Everything)), Ok(list), Ok(None)));
    for wrong in ["0", "yes", "9f31c0de2b77"] {
        assert_eq!((variable(wrong), typed(Some(wrong)).is_err()), (Err(2), true), "{wrong}");
    }
}
