//! Runs that are removed.

use crate::Desk;

#[test]
fn what_has_ended_is_removed_and_what_waits_only_by_force() {
    let desk = Desk::new();
    let (waiting, done, other) = (desk.waiting(), desk.done(), desk.done());
    let said = desk.refuses(&["runs", "rm", &done, &waiting]);
    assert_eq!(
        said,
        "error: the run `RUN` waits: write_file\nhint: nothing was removed; `--force` removes it all the same\n"
    );
    assert_eq!(desk.says(&["runs", "rm", &done, &done]), "removed 1 run\n");
    assert!(!desk.journal(&done).exists() && desk.journal(&other).exists());
    assert_eq!(desk.says(&["runs", "rm", "--older", "1h"]), "removed 0 runs\n");
    let began = std::time::Instant::now();
    while desk.says(&["runs", "rm", "--older", "0.001s"]) != "removed 1 run\n" {
        assert!(began.elapsed() < std::time::Duration::from_mins(1));
    }
    assert_eq!(desk.states(), ["waits"]);
    assert_eq!(desk.says(&["runs", "rm", &waiting, "--force"]), "removed 1 run\n");
    assert!(desk.states().is_empty());
    let ended = desk.sandbox.run(&["runs", "rm"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
}
