//! The listening side: a thread of its own with its own runtime, so that callers need none.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::constant::ConstantAnswers;
use crate::counts::{CountedConnection, Counts};
use crate::scripted::ScriptPlayer;
use crate::{http1, http2, tls};

/// What all connections share.
pub(crate) struct FakeServer {
    pub behaviour: ServerBehaviour,
    pub counts: Arc<Counts>,
}

pub(crate) enum ServerBehaviour {
    Scripted(Arc<ScriptPlayer>),
    Constant(ConstantAnswers),
}

/// How many clients may connect at the same moment. One more would try again only a second later.
const MOST_WAITING: u32 = 4096;

/// A server that runs until this is dropped.
pub(crate) struct RunningServer {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeServer {
    /// Serves on a free port of loopback. The port accepts connections when this returns.
    pub fn start(self: &Arc<Self>, tls: Option<TlsAcceptor>) -> io::Result<RunningServer> {
        let server = Arc::clone(self);
        RunningServer::start("fake-llm", move |stream| Arc::clone(&server).converse(stream, tls.clone()))
    }

    /// Notes bytes that are no HTTP request.
    pub fn refuse_bytes(&self, error: &io::Error) {
        match &self.behaviour {
            ServerBehaviour::Scripted(scripted) => scripted.refuse_bytes(error.to_string()),
            ServerBehaviour::Constant(_) => {}
        }
    }

    async fn converse(self: Arc<Self>, stream: TcpStream, tls: Option<TlsAcceptor>) {
        let connection = self.counts.connected();
        // This fails only for a connection that is already gone.
        let _ = stream.set_nodelay(true);
        let socket = CountedConnection { stream, counts: Arc::clone(&self.counts) };
        let Some(tls) = tls else {
            let _ = http1::serve(socket, &self, connection).await;
            return;
        };
        let Ok(wire) = tls.accept(socket).await else { return };
        if wire.get_ref().1.alpn_protocol() == Some(tls::HTTP2) {
            let _ = http2::serve(wire, self, connection).await;
        } else {
            let _ = http1::serve(wire, &self, connection).await;
        }
    }
}

impl RunningServer {
    /// Serves each connection to a free port of loopback, on a thread of its own.
    pub fn start<F>(name: &str, serve: impl Fn(TcpStream) -> F + Send + 'static) -> io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _entered = runtime.enter();
            let socket = TcpSocket::new_v4()?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            socket.listen(MOST_WAITING)?
        };
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, serve) => {}
                }
            });
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }
}

async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        match listener.accept().await {
            // How a connection ends is known to its client; the records have what was said on it.
            Ok((stream, _)) => drop(tokio::spawn(serve(stream))),
            // One client gave up too early, or there are too many at the moment: the others go on.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic on that thread has been reported there.
            let _ = thread.join();
        }
    }
}
