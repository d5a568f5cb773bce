//! What is not hardened, and why; and a first prompt for a function.

use std::fs;

use crate::{SORTER, Shop};

#[test]
fn without_a_terminal_nothing_is_sent() {
    let shop = Shop::with_code(&SORTER, SORTER.code);
    shop.record(&SORTER, 12);
    let (before, asked) = (shop.files(), shop.asked());
    let ended = shop.run(&["harden", "sorter", "shop"]);
    assert_eq!((ended.code, shop.asked()), (Some(4), asked), "{ended:?}");
    assert!(ended.stderr.contains("nothing was sent"), "{ended:?}");
    assert_eq!(shop.files(), before);
}

#[test]
fn an_agent_without_records_types_or_with_tools_that_write_is_refused() {
    let shop = Shop::with_code(&SORTER, SORTER.code);
    shop.record(&SORTER, 11);
    let left = shop.at_terminal(&["harden", "sorter", "shop"], &[]);
    assert_eq!(left.code, Some(2), "{}", left.written);
    let words = left.written.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("11 distinct records of `sorter` are too few: 12 are needed"), "{words}");
    assert!(words.contains("llm-do map sorter shop --over FILE"), "{words}");
    let refused = |arguments: &[&str], expected: &str| {
        let ended = shop.run(arguments);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(expected), "{expected}: {ended:?}");
    };
    refused(&["harden", "main", "shop"], "its answers are text without a schema");
    refused(&["harden", "nobody", "shop"], "the project has no agent `nobody`");
    refused(&["harden", "sorter", "shop", "--status"], "`sorter` is not hardened");
    refused(&["soften", "sorter", "shop"], "`sorter` is an agent already");
    let worker = shop.sandbox.path().join("shop/sorter.worker");
    let text = fs::read_to_string(&worker).unwrap().replace("description:", "toolsets: [filesystem_cwd]\ndescription:");
    fs::write(&worker, text).unwrap();
    refused(&["harden", "sorter", "shop"], "it writes files (sorter → ");
    let single = shop.run(&["harden", "sorter", "shop/sorter.worker"]);
    assert_eq!(single.code, Some(2), "{single:?}");
    assert!(shop.run(&["harden", "--author"]).stdout.starts_with("---\nname: harden_author\n"));
}

/// A version manager's `python3` is a script, which no fence takes in: that is said before anything is sent.
#[test]
fn where_code_cannot_run_nothing_is_sent() {
    let shop = Shop::with_code(&SORTER, SORTER.code);
    shop.record(&SORTER, 12);
    let shim = shop.sandbox.path().join("shim");
    fs::write(&shim, "#!/bin/sh\nexec python3 \"$@\"\n").unwrap();
    fs::set_permissions(&shim, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (before, asked) = (shop.files(), shop.asked());
    let left = shop.at_terminal(&["harden", "sorter", "shop", "--python", shim.to_str().unwrap()], &[]);
    let words = left.written.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!((left.code, shop.asked()), (Some(2), asked), "{words}");
    assert!(
        words.contains("no code runs here in its place") && words.contains("is a script that looks for Python"),
        "{words}"
    );
    assert_eq!(shop.files(), before);
}

#[test]
fn equal_inputs_count_once() {
    let shop = Shop::with_code(&SORTER, SORTER.code);
    shop.record(&SORTER, 11);
    shop.record(&SORTER, 11);
    let left = shop.at_terminal(&["harden", "sorter", "shop"], &[]);
    assert!(left.written.contains("11 distinct records"), "{}", left.written);
}

#[test]
fn a_function_becomes_a_first_prompt() {
    let shop = Shop::with_code(&SORTER, SORTER.code);
    let code = "__all__ = [\"area\"]\n\n\ndef area(width: int, height: int) -> int:\n    \"\"\"The area of a rectangle.\n\n    In square metres.\n    \"\"\"\n    return width * height\n";
    shop.sandbox.file("yard/project.json", "{\"version\": 1, \"entry\": {\"agent\": \"main\"}, \"worker_files\": [\"main.worker\"], \"python_files\": [\"tools.py\"]}\n");
    shop.sandbox.file("yard/main.worker", "---\nname: main\nmodel: anthropic:m\ntools: [area]\n---\nMeasure.\n");
    shop.sandbox.file("yard/tools.py", code);
    shop.sandbox.file(
        "yard/area.test.yaml",
        "cases:\n  - name: one\n    input: {\"width\": 2, \"height\": 3}\n    expect: { output: { equals: 6 } }\n",
    );
    let ended = shop.run(&["soften", "area", "yard"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let prompt = fs::read_to_string(shop.sandbox.path().join("yard/area.worker")).unwrap();
    assert!(prompt.starts_with("---\nname: area\ndescription: \"The area of a rectangle.\"\nschema_in: {"), "{prompt}");
    assert!(prompt.contains("\nschema_out: {\"type\":\"integer\"}\n---\n"), "{prompt}");
    assert!(prompt.contains("In square metres.") && prompt.contains("- {\"height\":3,\"width\":2} → 6"), "{prompt}");
    assert_eq!(shop.run(&["check", "yard/area.worker", "-m", "anthropic:m"]).code, Some(0));
}
