//! Who answers in each mode, what is counted, and a kill between the steps of a change.

use std::fs;

use serde_json::json;

use crate::{SORTER, Shop};

/// It is not sure of some, and wrong about others.
const UNSURE: &str = "from llm_do import NotSure\n\n\ndef sorter(change: str) -> dict:\n    if \"page\" in change:\n        \
                      raise NotSure(\"pages are hard\")\n    return {\"kind\": \"fixed\"}\n";

fn hardened(code: &str, keys: &[&str]) -> Shop {
    let shop = Shop::with_code(&SORTER, code);
    shop.record(&SORTER, 18);
    let left = shop.at_terminal(&["harden", "sorter", "shop"], keys);
    assert_eq!(left.code, Some(0), "{}", left.written);
    shop
}

fn manifest(shop: &Shop) -> String {
    fs::read_to_string(shop.sandbox.path().join("shop/project.json")).unwrap()
}

#[test]
fn where_code_is_not_sure_the_agent_is_asked() {
    let shop = hardened(UNSURE, &["y", "y", "y"]);
    assert!(manifest(&shop).contains("\"mode\": \"fallback\""), "{}", manifest(&shop));
    let asked = shop.asked();
    let ended = shop.call(&json!({"change": "Fix a typo"}));
    assert_eq!((ended.stdout.as_str(), shop.asked()), ("it says {\"kind\":\"fixed\"}\n", asked + 2), "{ended:?}");
    let ended = shop.call(&json!({"change": "Add page 300"}));
    assert_eq!((ended.stdout.as_str(), shop.asked()), ("it says {\"kind\":\"new\"}\n", asked + 5), "{ended:?}");
    // With nobody to fall back on it is an error, which its caller is told.
    assert_eq!(shop.run(&["harden", "sorter", "shop", "--mode", "code"]).code, Some(0));
    assert!(shop.sandbox.path().join("shop/sorter.worker.softened").exists());
    let ended = shop.call(&json!({"change": "Add page 300"}));
    assert!(ended.stdout.contains("the code of `sorter` gave no answer: it is not sure: pages are hard"), "{ended:?}");
    assert_eq!(shop.run(&["harden", "sorter", "shop", "--mode", "agent"]).code, Some(0));
    assert!(shop.sandbox.path().join("shop/sorter.worker").exists());
    assert_eq!(shop.call(&json!({"change": "Add page 301"})).stdout, "it says {\"kind\":\"new\"}\n");
}

#[test]
fn in_the_shadow_code_is_compared_and_changes_nothing() {
    let code = "def sorter(change: str) -> dict:\n    return {\"kind\": \"new\"}\n";
    let shop = hardened(code, &["y", "y", "s"]);
    assert!(manifest(&shop).contains("\"mode\": \"shadow\""), "{}", manifest(&shop));
    for change in ["Fix 1", "Add 2", "Add 3"] {
        let ended = shop.call(&json!({ "change": change }));
        let kind = if change.starts_with("Fix") { "fixed" } else { "new" };
        assert_eq!(ended.stdout, format!("it says {{\"kind\":\"{kind}\"}}\n"), "{ended:?}");
    }
    let status = shop.run(&["harden", "sorter", "shop", "--status"]).stdout;
    assert!(
        status.starts_with("sorter   mode shadow   (sorter.py:sorter)\n21 calls answered by the agent"),
        "{status}"
    );
    assert!(status.contains("the same answer 2 of 3 times"), "{status}");
    assert!(
        status.contains("differs: {\"change\":\"Fix 1\"}   agent: {\"kind\":\"fixed\"}   code: {\"kind\":\"new\"}"),
        "{status}"
    );
    let checked = shop.run(&["check", "shop"]).stdout;
    assert!(
        checked.contains("sorter  anthropic:m, and code in its shadow  (sorter.worker, sorter.py:sorter)"),
        "{checked}"
    );
}

#[test]
fn code_is_counted_and_shown_and_a_run_of_it_can_be_gone_through_again() {
    let shop = hardened(SORTER.code, &["y", "y", "y"]);
    shop.call(&json!({"change": "Fix 1"}));
    // As an entry it needs no model and no key.
    let ended = shop.sandbox.run(&["shop", "--agent", "sorter", "--input-json", "{\"change\": \"Fix 2\"}", "-q"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "{\n  \"kind\": \"fixed\"\n}\n"), "{ended:?}");
    let status = shop.run(&["harden", "sorter", "shop", "--status"]).stdout;
    assert!(status.contains("18 calls answered by the agent") && status.contains("2 by the code"), "{status}");
    let checked = shop.run(&["check", "shop"]).stdout;
    assert!(
        checked.contains("sorter  code  (sorter.py:sorter; the prompt rests: sorter.worker.softened)"),
        "{checked}"
    );
    let shown = shop.run(&["check", "shop", "--json"]).stdout;
    assert!(shown.contains("\"answers\": \"code\"") || shown.contains("\"answers\":\"code\""), "{shown}");
}

/// After each step that changes a file, the project is one that can be used.
#[test]
fn a_kill_between_two_steps_leaves_a_project_that_works() {
    let shop = hardened(SORTER.code, &["y", "y", "y"]);
    let at = |path: &str| shop.sandbox.path().join("shop").join(path);
    // The manifest was written, the worker file not yet moved.
    fs::rename(at("sorter.worker.softened"), at("sorter.worker")).unwrap();
    assert_eq!(shop.call(&json!({"change": "Fix 1"})).stdout, "it says {\"kind\":\"fixed\"}\n");
    // The same place on the way back.
    assert_eq!(shop.run(&["soften", "sorter", "shop"]).code, Some(0));
    assert!(!at("sorter.py").exists() && !at("sorter.test.yaml").exists());
    // The files were written, the manifest not yet: nothing uses them.
    let files = hardened(SORTER.code, &["y", "y", "y"]);
    for file in ["sorter.py", "sorter.test.yaml"] {
        fs::copy(files.sandbox.path().join("shop").join(file), at(file)).unwrap();
    }
    assert_eq!(shop.run(&["check", "shop"]).code, Some(0));
    assert_eq!(shop.call(&json!({"change": "Add 1"})).stdout, "it says {\"kind\":\"new\"}\n");
}

#[test]
fn what_somebody_has_changed_stays_when_the_agent_is_back() {
    let shop = hardened(SORTER.code, &["y", "y", "y"]);
    let path = shop.sandbox.path().join("shop/sorter.py");
    let changed = format!("{}# mine\n", fs::read_to_string(&path).unwrap());
    fs::write(&path, &changed).unwrap();
    let ended = shop.run(&["soften", "sorter", "shop"]);
    assert!(ended.stdout.contains("sorter.py stays: it was changed since it was written"), "{ended:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), changed);
}
