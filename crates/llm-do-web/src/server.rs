//! The server from what was decided to its end.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use llm_do::remedy::Wording;
use llm_do_launch::error::LaunchError;
use llm_do_launch::inbox::Inbox;
use llm_do_launch::record::LaunchOverrides;
use llm_do_launch::settings::Settings;
use llm_do_launch::trust::Consent;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::{self, WebState};
use crate::guard::{ConnectionBounds, Guard, KeyKind, Keys, ServedAddress, ServerTls, TlsFiles, accept};
use crate::house::{House, LaunchWishes, ServedProject};
use crate::own_runs::OwnRuns;
use crate::record_cache::{LiveSummaries, RecordCache};

/// What was decided about a server.
pub struct WebPlan {
    pub settings: Arc<Settings>,
    /// What holds for every run that begins or goes on here.
    pub overrides: LaunchOverrides,
    pub projects: Vec<PathBuf>,
    /// What the user agreed to for this process.
    pub consent: Option<Consent>,
    pub wording: Wording,
    /// Where it listens; on this machine, at a port that is free, if nobody says.
    pub listen: Option<SocketAddr>,
    pub public_url: Option<String>,
    pub tls: Option<TlsFiles>,
    pub is_behind_proxy: bool,
    pub is_read_only: bool,
    pub has_new_keys: bool,
    pub bounds: ConnectionBounds,
}

/// A server that listens.
pub struct WebServer {
    served: WebState,
    listener: TcpListener,
    tls: Option<ServerTls>,
    bounds: ConnectionBounds,
}

/// The port if nobody names one, and how many after it are tried.
const PORT: u16 = 7700;
const MOST_PORTS: u16 = 10;

impl WebServer {
    /// Everything that can be wrong is found before anything is served.
    pub async fn open(plan: WebPlan) -> Result<Self, LaunchError> {
        let WebPlan { settings, overrides, projects, consent, wording, tls, bounds, .. } = plan;
        let store = settings.state.runs()?;
        let store = store.map_err(|reason| LaunchError::usage(format!("no runs are kept: {reason}")))?;
        let state = settings.state.directory().ok_or_else(|| LaunchError::usage("there is no home directory"))?;
        let tls = tls.map(|files| files.read()).transpose();
        let tls = tls.map_err(|error| {
            LaunchError::usage(format!("the certificate cannot be used: {error}"))
                .hint("both are PEM: the certificate with its chain, and its key")
        })?;
        let listener = listening(plan.listen).await?;
        let at = listener.local_addr().map_err(|error| LaunchError::failed(error.to_string()))?;
        let address = ServedAddress::of(at, plan.public_url.as_deref(), tls.is_some(), plan.is_behind_proxy);
        let address = address.map_err(|error| {
            LaunchError::usage(error.to_string()).hint(
                "a server beyond this machine needs its public address, which begins with https, and either a certificate \
                 with its key or a proxy that has one",
            )
        })?;
        let directory = state.join("web");
        let keys = if plan.has_new_keys { Keys::anew(&directory) } else { Keys::of(&directory) };
        let keys = keys.map_err(|error| LaunchError::usage(format!("the keys of the page: {error}")))?;
        let guard = Guard::new(address, keys);
        let guard = if plan.is_read_only { guard.read_only() } else { guard };
        let user = settings.variables.user();
        let mut house = House {
            settings,
            records: RecordCache::default(),
            live: LiveSummaries::default(),
            inbox: Mutex::new(Inbox::of(store.clone())),
            store,
            projects: BTreeMap::new(),
            own: OwnRuns::default(),
            user,
            wording,
            is_read_only: plan.is_read_only,
            overrides,
            consent,
        };
        for path in &projects {
            let project = ServedProject::of(path)?;
            let launch = house.launch(&project, LaunchWishes::default());
            let launch = launch.map_err(|error| LaunchError::usage(error.message))?;
            // A project with mistakes is shown with them; one that is not trusted is not served.
            match Box::pin(house.trusted(launch)).await {
                Ok(_) | Err(LaunchError::Project(_)) => {}
                Err(error) => return Err(error),
            }
            if let Some(other) = house.projects.insert(project.name.clone(), project) {
                return Err(LaunchError::usage(format!("two projects are called `{}`", other.name))
                    .hint("serve them one at a time: requests name a project by its directory"));
            }
        }
        Ok(Self { served: WebState { house: Arc::new(house), guard: Arc::new(guard) }, listener, tls, bounds })
    }

    /// Where it is, as a person opens it, without a key.
    pub fn url(&self) -> &str {
        self.served.guard.address().url()
    }

    /// The same with the key of the page, where no request line and no log has it.
    pub fn url_with_key(&self) -> String {
        let kind = if self.served.house.is_read_only { KeyKind::Look } else { KeyKind::All };
        format!("{}/#k={}", self.url(), self.served.guard.keys().text(kind))
    }

    pub fn key_file(&self, kind: KeyKind) -> PathBuf {
        self.served.guard.keys().file(kind)
    }

    /// Serves until the end is called. What then waits for a person waits in its record; any other run is stopped.
    pub async fn run(self, end: CancellationToken) {
        let Self { served, listener, tls, bounds } = self;
        let routes = api::routes(&served);
        accept(listener, tls, bounds, routes, end).await;
        served.house.own.leave().await;
    }
}

async fn listening(named: Option<SocketAddr>) -> Result<TcpListener, LaunchError> {
    let unheard = |at: SocketAddr, error: std::io::Error| {
        LaunchError::usage(format!("nobody can listen at {at}: {error}")).hint("name another address")
    };
    if let Some(at) = named {
        return TcpListener::bind(at).await.map_err(|error| unheard(at, error));
    }
    let mut last = None;
    for port in PORT..PORT + MOST_PORTS {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match TcpListener::bind(at).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(unheard(at, error)),
        }
    }
    Err(last.unwrap_or_else(|| LaunchError::usage("no port is free")))
}
