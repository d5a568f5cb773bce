//! The HTTP that the engine speaks to a worker: what the worker serves, and invocations as two streams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use restate_sdk_shared_core::VM as _;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

use crate::attempt::{AnswerBody, EngineAttempt, LIST};
use crate::worker::WorkerHouse;

type EndpointReply = Response<Either<Full<Bytes>, AnswerBody>>;

/// How often an idle connection is asked for a sign of life.
const PING: std::time::Duration = std::time::Duration::from_secs(20);

/// Listens at an address, beside other workers on this machine that do.
pub fn listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

/// Takes connections until the end.
pub async fn serve(listener: TcpListener, house: Arc<WorkerHouse>, end: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end.cancelled() => return,
        };
        // A connection that was gone before it was taken is not missed.
        let Ok((stream, _)) = accepted else { continue };
        let _ = stream.set_nodelay(true);
        let house = Arc::clone(&house);
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let house = Arc::clone(&house);
                async move { Ok::<_, std::convert::Infallible>(answered(&house, request)) }
            });
            let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            http.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
            let _ = http.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

fn plain(status: StatusCode, text: &str) -> EndpointReply {
    let mut reply = Response::new(Either::Left(Full::new(Bytes::from(text.to_owned()))));
    *reply.status_mut() = status;
    reply
}

fn answered(house: &Arc<WorkerHouse>, request: Request<Incoming>) -> EndpointReply {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if let Some(identity) = &house.identity
        && !identity.vouches_for(&head.headers, &path)
    {
        house.note_once(&house.told.unsigned, "a request that the engine did not sign was refused");
        return plain(StatusCode::UNAUTHORIZED, "the engine did not sign this request");
    }
    if path == "/discover" {
        return discovered(house);
    }
    let mut parts = path.trim_matches('/').splitn(3, '/');
    let (Some("invoke"), Some(service), Some(handler)) = (parts.next(), parts.next(), parts.next()) else {
        return plain(StatusCode::NOT_FOUND, "there is nothing at this path");
    };
    if house.is_draining.load(Ordering::SeqCst) {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "this worker is about to end");
    }
    let (service, handler) = (service.to_owned(), handler.to_owned());
    let vm = match EngineAttempt::vm(head.headers) {
        Ok(vm) => vm,
        Err((status, why)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return plain(status, &why);
        }
    };
    let head = vm.get_response_head();
    let (out, pieces) = tokio::sync::mpsc::unbounded_channel();
    let house = Arc::clone(house);
    let task = tokio::spawn(async move {
        let _present = house.present();
        if let Some((attempt, asked)) = EngineAttempt::begin(vm, body, out).await {
            house.invoked(&service, &handler, attempt, asked).await;
        }
    });
    let mut reply = Response::builder().status(head.status_code);
    for header in head.headers {
        reply = reply.header(&*header.key, &*header.value);
    }
    let body = Either::Right(AnswerBody { pieces, task: task.abort_handle() });
    reply.body(body).unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "no answer can be made"))
}

/// As long as nothing is heard of a running attempt: an effect may take its time.
const PATIENCE: u64 = 24 * 3600 * 1000;
/// So long a run and its record can be looked at after its end.
const RETENTION: u64 = 30 * 24 * 3600 * 1000;

/// What this worker serves: each project, and the list of runs.
fn discovered(house: &WorkerHouse) -> EndpointReply {
    let payload = || {
        json!({
            "input": {"contentType": "application/json", "required": false, "jsonSchema": {}},
            "output": {"contentType": "application/json", "setContentTypeIfEmpty": false, "jsonSchema": {}},
        })
    };
    let handler = |name: &str, kind: &str, more: Value| {
        let mut all = payload();
        all["name"] = json!(name);
        all["ty"] = json!(kind);
        for (key, value) in more.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        all
    };
    // Who looks asks again: nobody waits for a worker that comes back tomorrow.
    let look = || {
        json!({
            "journalRetention": 0,
            "idempotencyRetention": 0,
            "retryPolicyInitialInterval": 50,
            "retryPolicyExponentiationFactor": 2.0,
            "retryPolicyMaxInterval": 1000,
            "retryPolicyMaxAttempts": 8,
            "retryPolicyOnMaxAttempts": "KILL",
        })
    };
    let retries = json!({
        "inactivityTimeout": PATIENCE,
        "abortTimeout": PATIENCE,
        "journalRetention": 0,
        "workflowCompletionRetention": RETENTION,
        "enableLazyState": true,
        "retryPolicyInitialInterval": 100,
        "retryPolicyExponentiationFactor": 2.0,
        "retryPolicyMaxInterval": 5000,
        "retryPolicyMaxAttempts": u32::MAX,
        "retryPolicyOnMaxAttempts": "PAUSE",
    });
    let lazy = |mut options: Value| {
        options["enableLazyState"] = json!(true);
        options
    };
    // What is said is heard, whenever a worker comes back.
    let word = || {
        let mut options = lazy(look());
        for key in ["retryPolicyMaxInterval", "retryPolicyMaxAttempts", "retryPolicyOnMaxAttempts"] {
            options[key] = retries[key].clone();
        }
        options
    };
    let mut services: Vec<Value> = house
        .projects
        .values()
        .map(|project| {
            json!({
                "name": project.name,
                "ty": "WORKFLOW",
                "metadata": {"program": project.program},
                "handlers": [
                    handler("run", "WORKFLOW", retries.clone()),
                    handler("say", "SHARED", word()),
                    handler("cancel", "SHARED", word()),
                    handler("lines", "SHARED", lazy(look())),
                    handler("about", "SHARED", lazy(look())),
                ],
            })
        })
        .collect();
    services.push(json!({
        "name": LIST,
        "ty": "VIRTUAL_OBJECT",
        "handlers": [handler("put", "EXCLUSIVE", json!({"journalRetention": 0})), handler("list", "SHARED", look())],
    }));
    let manifest = json!({
        "protocolMode": "BIDI_STREAM",
        "minProtocolVersion": 5,
        "maxProtocolVersion": 6,
        "services": services,
    });
    let mut reply = plain(StatusCode::OK, &manifest.to_string());
    let kind = hyper::header::HeaderValue::from_static("application/vnd.restate.endpointmanifest.v4+json");
    reply.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    reply
}
