//! A call of the entry on a task of its own: turns go in, answers come out. One turn is a run, many are a chat.

use std::sync::Arc;

use llm_do::message::Message;
use llm_do::project::Entry;
use llm_do::runtime::input::Input;
use llm_do::runtime::{CallScope, Output, RunError, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::console;

pub struct Session {
    pub runtime: Arc<Runtime>,
    orders: mpsc::UnboundedSender<Order>,
    /// Gives the messages of the call when it is closed.
    task: JoinHandle<Vec<Message>>,
}

enum Order {
    Turn {
        input: Input,
        cancelled: oneshot::Receiver<()>,
        ended: oneshot::Sender<Result<Output, RunError>>,
    },
    /// Close the call; the next turn opens another one.
    Reset,
}

/// A turn that goes on.
pub struct Turn {
    pub ended: oneshot::Receiver<Result<Output, RunError>>,
    cancel: Option<oneshot::Sender<()>>,
}

impl Turn {
    /// The turn ends at its next await point.
    pub fn cancel(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            let _ = cancel.send(());
        }
    }
}

impl Session {
    // A task of its own: the future that blocks the thread would ask the system for news after each piece of a stream.
    pub fn start(runtime: Runtime) -> Self {
        let runtime = Arc::new(runtime);
        let (orders, received) = mpsc::unbounded_channel();
        let task = tokio::spawn(console::paced(serve(Arc::clone(&runtime), received)));
        Self { runtime, orders, task }
    }

    pub fn turn(&self, input: Input) -> Turn {
        let (cancel, cancelled) = oneshot::channel();
        let (sender, ended) = oneshot::channel();
        // A task that is gone drops the order, and with it the sender of the answer: whoever waits hears of that.
        let _ = self.orders.send(Order::Turn { input, cancelled, ended: sender });
        Turn { ended, cancel: Some(cancel) }
    }

    pub fn reset(&self) {
        let _ = self.orders.send(Order::Reset);
    }

    /// No more turns: the call is closed. Dropping or aborting the task instead ends it, and what it started, at once.
    pub fn close(self) -> JoinHandle<Vec<Message>> {
        self.task
    }
}

async fn serve(runtime: Arc<Runtime>, mut orders: mpsc::UnboundedReceiver<Order>) -> Vec<Message> {
    let mut scope = None;
    while let Some(order) = orders.recv().await {
        match order {
            Order::Turn { input, cancelled, ended } => {
                let answer = turn(&runtime, &mut scope, input, cancelled).await;
                let _ = ended.send(answer);
            }
            Order::Reset => {
                if let Some(scope) = scope.take() {
                    scope.close().await;
                }
            }
        }
    }
    let messages = match scope {
        Some(scope) => scope.finish().await,
        None => Vec::new(),
    };
    runtime.close().await;
    messages
}

async fn turn<'r>(
    runtime: &'r Runtime,
    scope: &mut Option<CallScope<'r>>,
    input: Input,
    cancelled: oneshot::Receiver<()>,
) -> Result<Output, RunError> {
    let cancelled = async {
        // Nobody cancels any more: only the answer is left to wait for.
        if cancelled.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let entry = match &runtime.program().entry {
        Entry::Agent(entry) => entry,
        Entry::Function(function) => {
            return tokio::select! {
                answer = runtime.enter_function(function, input) => answer,
                () = cancelled => Err(RunError::Cancelled { partial: String::new() }),
            };
        }
        Entry::Open => return Err(RunError::NotStarted),
    };
    let mut cancelled = std::pin::pin!(cancelled);
    let scope = match scope {
        Some(scope) => scope,
        // A server may take its time to start.
        None => tokio::select! {
            opened = runtime.open(entry) => scope.insert(opened?),
            () = &mut cancelled => return Err(RunError::Cancelled { partial: String::new() }),
        },
    };
    scope.turn_until(input, cancelled).await
}
