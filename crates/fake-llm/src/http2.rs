//! HTTP/2 by hyper. A cut here is a reset of the stream: the connection belongs to others, too.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_rustls::server::TlsStream;

use crate::answer::{DeliveryEnd, DeliveryStep, FakeAnswerHead, REQUEST_ID};
use crate::counts::CountedConnection;
use crate::request::{Headers, HttpVersion, TransportRequest};
use crate::scripted::Delivery;
use crate::server::{FakeServer, ServerBehaviour};

/// More than any test opens on one connection.
const MOST_STREAMS: u32 = 1000;

pub(crate) async fn serve(
    wire: TlsStream<CountedConnection>,
    server: Arc<FakeServer>,
    connection: usize,
) -> hyper::Result<()> {
    let service = service_fn(move |request| answer(request, Arc::clone(&server), connection));
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(MOST_STREAMS);
    builder.serve_connection(TokioIo::new(wire), service).await
}

async fn answer(
    request: Request<hyper::body::Incoming>,
    server: Arc<FakeServer>,
    connection: usize,
) -> Result<Response<Remainder>, hyper::Error> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let in_flight = server.counts.begin();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    match &server.behaviour {
        ServerBehaviour::Constant(prepared) => {
            let answer = prepared.answer(&path, &bytes).await;
            let length = Some(answer.body.len());
            let head =
                FakeAnswerHead { status: answer.status, content_type: answer.content_type, retry_after: None, length };
            let steps = VecDeque::from([DeliveryStep::Send(answer.body)]);
            Ok(response(
                &head,
                Remainder { steps, end: DeliveryEnd::Complete, flushed: false, standing: None, delivery: None },
            ))
        }
        ServerBehaviour::Scripted(scripted) => {
            let method = head.method.as_str().to_owned();
            let headers = headers(&head.headers);
            let incoming = TransportRequest { connection, version: HttpVersion::Http2, method, path, headers, bytes };
            let (answer, delivery) = scripted.respond(incoming, in_flight);
            let plan = answer.plan();
            tokio::time::sleep(plan.latency).await;
            for gate in plan.before_head {
                gate.pass().await;
            }
            let steps = Remainder {
                steps: plan.steps,
                end: plan.end,
                flushed: false,
                standing: None,
                delivery: Some(delivery),
            };
            Ok(response(&plan.head, steps))
        }
    }
}

fn headers(headers: &hyper::HeaderMap) -> Headers {
    let fields = headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        (name.as_str().to_owned(), value.into_owned())
    });
    Headers(fields.collect())
}

fn response(head: &FakeAnswerHead, steps: Remainder) -> Response<Remainder> {
    let builder = Response::builder().status(head.status).header("request-id", REQUEST_ID);
    let mut builder = builder.header("content-type", &head.content_type);
    if let Some((name, when)) = &head.retry_after {
        builder = builder.header(*name, when);
    }
    if let Some(length) = head.length {
        builder = builder.header("content-length", length);
    }
    builder.body(steps).expect("a script's status and headers are valid")
}

/// What is left of a plan, as a body.
struct Remainder {
    steps: VecDeque<DeliveryStep>,
    end: DeliveryEnd,
    /// Whether a cut has let the connection write what came before it.
    flushed: bool,
    standing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    delivery: Option<Delivery>,
}

impl Body for Remainder {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        loop {
            if let Some(gate) = &mut this.standing {
                ready!(gate.as_mut().poll(cx));
                this.standing = None;
            }
            let step = this.steps.pop_front();
            if this.steps.is_empty()
                && !matches!(step, Some(DeliveryStep::Stall(_)))
                && let Some(delivery) = &mut this.delivery
            {
                delivery.complete();
            }
            match step {
                Some(DeliveryStep::Stall(gate)) => this.standing = Some(Box::pin(gate.pass())),
                Some(DeliveryStep::Send(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => match this.end {
                    DeliveryEnd::Complete => return Poll::Ready(None),
                    // A reset throws away what is still queued, so the connection gets a turn to write it first.
                    DeliveryEnd::Close | DeliveryEnd::Reset if !std::mem::replace(&mut this.flushed, true) => {
                        this.standing = Some(Box::pin(tokio::task::yield_now()));
                    }
                    DeliveryEnd::Close | DeliveryEnd::Reset => {
                        return Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())));
                    }
                },
            }
        }
    }
}
