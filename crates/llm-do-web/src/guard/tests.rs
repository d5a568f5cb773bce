use std::net::SocketAddr;

use axum::http::Request;

use super::*;

fn guard() -> (tempfile::TempDir, Guard) {
    let place = tempfile::tempdir().unwrap();
    let keys = Keys::of(&place.path().join("web")).unwrap();
    let address = ServedAddress::of("127.0.0.1:7700".parse().unwrap(), None, false, false).unwrap();
    (place, Guard::new(address, keys))
}

fn parts(headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri("/api/runs");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

#[test]
fn only_our_own_names_are_answered() {
    let (_place, guard) = guard();
    let check = |headers: &[(&str, &str)]| guard.check(&parts(headers), KeyRequirement::Nothing, Instant::now());
    for host in ["127.0.0.1:7700", "[::1]:7700", "localhost:7700", "LOCALHOST:7700"] {
        assert_eq!(check(&[("host", host)]), Ok(()), "{host}");
    }
    for host in ["", "127.0.0.1", "127.0.0.1:7701", "evil.example:7700", "localhost.evil.example:7700", "0.0.0.0:7700"]
    {
        assert_eq!(check(&[("host", host)]), Err(GuardRefusal::OtherHost), "{host}");
    }
    assert_eq!(check(&[("host", "localhost:7700"), ("host", "evil.example")]), Err(GuardRefusal::OtherHost));
    let own = ("host", "127.0.0.1:7700");
    assert_eq!(check(&[own, ("origin", "http://127.0.0.1:7700")]), Ok(()));
    for origin in [
        "null",
        "http://127.0.0.1:8000",
        "https://127.0.0.1:7700",
        "http://evil.example",
        "",
        "x-http://localhost:7700",
    ] {
        assert_eq!(check(&[own, ("origin", origin)]), Err(GuardRefusal::OtherOrigin), "{origin}");
    }
    assert_eq!(
        check(&[("host", "evil.example"), ("x-forwarded-host", "127.0.0.1:7700")]),
        Err(GuardRefusal::OtherHost)
    );
}

#[test]
fn each_key_opens_what_it_is_for() {
    let (_place, guard) = guard();
    let bearer = |kind| format!("Bearer {}", guard.keys().text(kind));
    for (need, kinds) in [
        (KeyRequirement::Look, &[KeyKind::All, KeyKind::Look][..]),
        (KeyRequirement::Ask, &[KeyKind::All, KeyKind::Ask]),
        (KeyRequirement::All, &[KeyKind::All]),
    ] {
        for kind in KeyKind::EACH {
            let request = parts(&[("host", "localhost:7700"), ("authorization", &bearer(kind))]);
            let expected = if kinds.contains(&kind) { Ok(()) } else { Err(GuardRefusal::NotEnough) };
            assert_eq!(guard.check(&request, need, Instant::now()), expected, "{need:?} with {kind:?}");
        }
        let without = parts(&[("host", "localhost:7700")]);
        assert_eq!(guard.check(&without, need, Instant::now()), Err(GuardRefusal::NoKey));
    }
}

#[test]
fn a_server_that_only_shows_takes_one_key() {
    let (_place, guard) = guard();
    let guard = guard.read_only();
    let check = |kind| {
        let bearer = format!("Bearer {}", guard.keys().text(kind));
        guard.check(
            &parts(&[("host", "localhost:7700"), ("authorization", &bearer)]),
            KeyRequirement::Look,
            Instant::now(),
        )
    };
    assert_eq!(check(KeyKind::Look), Ok(()));
    assert_eq!(check(KeyKind::All), Err(GuardRefusal::OnlyLooks));
}

#[test]
fn wrong_keys_are_answered_ten_times_a_minute_and_right_ones_always() {
    let (_place, guard) = guard();
    let begun = Instant::now();
    let request = |key: &str| parts(&[("host", "localhost:7700"), ("authorization", &format!("Bearer {key}"))]);
    let all = guard.keys().text(KeyKind::All).to_owned();
    let almost = format!("{}{}", &all[..63], if all.ends_with('0') { '1' } else { '0' });
    for wrong in ["", "x", almost.as_str(), &all[..63], &format!("{all}0")].iter().cycle().take(10) {
        assert_eq!(guard.check(&request(wrong), KeyRequirement::Look, begun), Err(GuardRefusal::WrongKey), "{wrong}");
    }
    assert_eq!(guard.check(&request("x"), KeyRequirement::Look, begun), Err(GuardRefusal::TooManyWrongKeys));
    assert_eq!(guard.check(&request(&all), KeyRequirement::All, begun), Ok(()));
    assert_eq!(guard.check(&request("x"), KeyRequirement::Look, begun + WRONG_KEYS_LAST), Err(GuardRefusal::WrongKey));
}

#[test]
fn keys_are_made_once_for_their_user_alone_and_anew_when_that_is_wanted() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("state/web");
    let (first, again) = (Keys::of(&directory).unwrap(), Keys::of(&directory).unwrap());
    assert_eq!(first.text(KeyKind::Ask), again.text(KeyKind::Ask));
    assert_ne!(first.text(KeyKind::Ask), first.text(KeyKind::All));
    let anew = Keys::anew(&directory).unwrap();
    assert_eq!(anew.kind_of(first.text(KeyKind::All)), None);
    for kind in KeyKind::EACH {
        let mode = std::fs::metadata(anew.file(kind)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    std::fs::set_permissions(anew.file(KeyKind::Look), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(Keys::of(&directory).is_err());
}

#[test]
fn servers_that_begin_at_once_have_the_same_keys() {
    let place = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let directory = place.path().join(round.to_string());
        let keys: Vec<Keys> = std::thread::scope(|scope| {
            let begun: Vec<_> = (0..8).map(|_| scope.spawn(|| Keys::of(&directory))).collect();
            begun.into_iter().map(|keys| keys.join().unwrap().unwrap()).collect()
        });
        for other in &keys[1..] {
            assert!(KeyKind::EACH.iter().all(|kind| other.text(*kind) == keys[0].text(*kind)));
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), KeyKind::EACH.len());
    }
}

#[test]
fn beyond_this_machine_a_server_is_named_and_confidential() {
    let (loopback, wide): (SocketAddr, SocketAddr) =
        ("127.0.0.1:7700".parse().unwrap(), "0.0.0.0:7700".parse().unwrap());
    let url = Some("https://box.example:7700");
    let of = |at, url, tls, proxy| ServedAddress::of(at, url, tls, proxy).map(|address| address.url().to_owned());
    assert_eq!(of(loopback, None, false, false).unwrap(), "http://127.0.0.1:7700");
    assert_eq!(of(loopback, None, true, false).unwrap(), "https://127.0.0.1:7700");
    for (at, url, tls, proxy) in [
        (wide, None, false, false),
        (wide, None, true, false),
        (wide, None, false, true),
        (wide, url, false, false),
        (wide, Some("http://box.example"), true, false),
        (loopback, url, false, false),
        (wide, Some("box.example"), true, false),
        (wide, Some("https://box.example/page"), true, false),
        (wide, Some("https://ann@box.example"), true, false),
    ] {
        assert!(of(at, url, tls, proxy).is_err(), "{url:?}");
    }
    assert_eq!(of(wide, url, true, false).unwrap(), "https://box.example:7700");
    assert_eq!(of(wide, Some("https://Box.example/"), false, true).unwrap(), "https://box.example");
    let named = ServedAddress::of(wide, Some("https://box.example"), false, true).unwrap();
    assert!(named.is_host("box.example") && named.is_host("box.example:443") && !named.is_host("127.0.0.1:7700"));
    assert!(named.is_origin("https://box.example") && !named.is_origin("http://box.example"));
}
