use std::sync::Arc;

use llm_do::{ModelChoices, ModelName, Project};

use super::*;
use crate::config::Config;
use crate::settings::Variables;

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

fn state(home: &Path) -> StateDirectory {
    let variables = Variables::of([("LLM_DO_HOME", home.to_str().unwrap())]);
    StateDirectory::of(&variables, &Config::default(), Arc::new(|_| {})).unwrap()
}

#[test]
fn what_is_kept_is_for_a_place_and_what_was_shown() {
    let (home, one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let own = state(home.path());
    let given = |directory: &Path, env: &[&str]| {
        standing(&surveyed(directory, env), &TrustAnswers::default(), &own).unwrap().is_given
    };
    assert!(given(one.path(), &[]) && !home.path().join("state").exists(), "nothing is made for nothing");
    assert!(!given(one.path(), &["A"]));
    keep_written(&WrittenOver::Nothing, &surveyed(one.path(), &["A"]), &own).unwrap();
    assert!(given(one.path(), &["A"]) && !given(one.path(), &["A", "B"]) && !given(two.path(), &["A"]));
    let over = |env: &[&str]| WrittenOver::project(&surveyed(one.path(), env), &own).unwrap();
    keep_written(&over(&["C"]), &surveyed(one.path(), &["A", "B"]), &own).unwrap();
    assert!(!given(one.path(), &["B"]), "over what nobody agreed to nothing is");
    keep_written(&over(&["A"]), &surveyed(one.path(), &["A", "B"]), &own).unwrap();
    assert!(given(one.path(), &["A"]) && given(one.path(), &["B"]), "what was agreed to stays so");
    let other = tempfile::tempdir().unwrap();
    let stranger = state(other.path());
    std::fs::create_dir_all(other.path().join("state")).unwrap();
    std::fs::rename(home.path().join("state/trust"), other.path().join("state/trust")).unwrap();
    let standing = standing(&surveyed(one.path(), &["A"]), &TrustAnswers::default(), &stranger).unwrap();
    assert!(!standing.is_given, "another key");
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

/// Without a person to ask, and with one who says no, nothing is trusted; what is agreed to is kept.
#[tokio::test]
async fn trust_fails_closed() {
    struct Person(TrustChoice);
    impl TrustPrompt for Person {
        fn ask<'a>(&'a self, list: &'a TrustList) -> BoxFuture<'a, Result<TrustChoice, LaunchError>> {
            assert_eq!(list.items.len(), 1);
            Box::pin(async { Ok(self.0) })
        }
    }
    let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let state = state(home.path());
    let settled = async |answers: TrustAnswers<'_>| settle(surveyed(project.path(), &["A"]), &answers, &state).await;
    let why = |settled: Result<Settlement, LaunchError>| match settled {
        Err(LaunchError::Untrusted(untrusted)) => untrusted.why,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it is trusted"),
    };
    assert_eq!(why(settled(TrustAnswers::default()).await), UntrustedReason::Unattended);
    let (no, yes) = (Person(TrustChoice::No), Person(TrustChoice::Exactly));
    let asking = |prompt| TrustAnswers { prompt: Some(prompt), ..TrustAnswers::default() };
    assert_eq!(why(settled(asking(&no)).await), UntrustedReason::Refused);
    let other = TrustDigest::parse(&"0".repeat(32)).map(Consent::List);
    let answers = TrustAnswers { kept: other.clone(), ..TrustAnswers::default() };
    assert_eq!(why(settled(answers).await), UntrustedReason::OtherList);
    let answers = TrustAnswers { once: other, ..TrustAnswers::default() };
    assert_eq!(why(settled(answers).await), UntrustedReason::Unattended);
    assert!(settled(TrustAnswers { once: Some(Consent::Everything), ..TrustAnswers::default() }).await.is_ok());
    assert_eq!(why(settled(TrustAnswers::default()).await), UntrustedReason::Unattended, "that was for once");
    assert!(settled(asking(&yes)).await.is_ok());
    assert!(settled(TrustAnswers::default()).await.is_ok(), "that is kept");
}
