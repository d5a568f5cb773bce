//! Where a browser lands after a login: an address of this machine, for as long as somebody waits there.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::grant::pairs;

/// The ports, of which the first one that is free is taken. They are fixed, since authorization servers know them.
pub(super) const PORTS: [u16; 3] = [17645, 17646, 17647];
const LARGEST_REQUEST: u64 = 16 * 1024;
/// How long one connection may take: whoever opens one and says nothing holds up nobody for longer.
const ONE_CONNECTION: Duration = Duration::from_secs(5);

/// The address that a browser is sent back to.
pub(super) fn redirect(port: u16) -> String {
    format!("http://127.0.0.1:{port}/callback")
}

pub(super) struct CallbackListener {
    listener: TcpListener,
    pub port: u16,
}

impl CallbackListener {
    pub(super) async fn bind() -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for port in PORTS {
            match TcpListener::bind(("127.0.0.1", port)).await {
                Ok(listener) => return Ok(Self { listener, port }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// What the browser brings that was sent out with this state. Others that come by are sent away.
    pub(super) async fn landed(&self, state: &str) -> io::Result<Vec<(String, String)>> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let heard = tokio::time::timeout(ONE_CONNECTION, heard(stream, state)).await;
            if let Ok(Ok(Some(said))) = heard {
                return Ok(said);
            }
        }
    }
}

async fn heard(mut stream: TcpStream, state: &str) -> io::Result<Option<Vec<(String, String)>>> {
    let mut text = Vec::new();
    while !text.windows(4).any(|end| end == b"\r\n\r\n") {
        if text.len() as u64 >= LARGEST_REQUEST || stream.read_buf(&mut text).await? == 0 {
            return Ok(None);
        }
    }
    let line = text.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let said = std::str::from_utf8(line).ok().and_then(|line| query(line, state));
    let (status, words) = match &said {
        Some(_) => ("200 OK", "You can close this page and go back to llm-do."),
        None => ("400 Bad Request", "This is not the page that the login waits for."),
    };
    let head = "Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer";
    let page =
        format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{words}", words.len());
    stream.write_all(page.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(said)
}

/// The pairs of `GET /callback?…`, if they have this state.
fn query(line: &str, state: &str) -> Option<Vec<(String, String)>> {
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    let query = target.strip_prefix("/callback?")?;
    with_state(query, state)
}

/// The pairs of a query, if they have this state and nothing twice.
pub(super) fn with_state(query: &str, state: &str) -> Option<Vec<(String, String)>> {
    let said = pairs(query);
    let is_ours = said.iter().any(|(key, value)| key == "state" && value == state);
    let is_twice = said.iter().enumerate().any(|(index, (key, _))| said[..index].iter().any(|(other, _)| other == key));
    (is_ours && !is_twice).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_that_was_sent_out_comes_back() {
        let found = |line: &str| query(line, "s");
        assert!(found("GET /callback?code=c&state=s HTTP/1.1").is_some());
        for line in [
            "GET /callback?code=c&state=t HTTP/1.1",
            "GET /callback?code=c HTTP/1.1",
            "GET /other?code=c&state=s HTTP/1.1",
            "POST /callback?code=c&state=s HTTP/1.1",
            "GET /callback?state=s&state=s&code=c HTTP/1.1",
            "GET /callback?state=s&code=c&code=d HTTP/1.1",
            "",
        ] {
            assert_eq!(found(line), None, "{line}");
        }
    }
}
