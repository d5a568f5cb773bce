//! The comparison with the peers is Python: its own tests, run where all others run.

use std::path::Path;
use std::process::Command;

#[test]
fn the_comparison_with_the_peers_passes_its_own_tests() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let tested = Command::new("python3").args(["-B", "-m", "unittest", "discover", "-s"]).arg(place).output();
    let tested = tested.expect("these tests need python3");
    let said = String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{said}");
    assert!(!said.contains("Ran 0 tests"), "{said}");
}
