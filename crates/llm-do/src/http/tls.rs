//! TLS, set up when the first `https` address is opened: a run that stays on plain http pays nothing for it.

use std::sync::{Arc, OnceLock};

use hyper::Uri;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::{HttpError, host_and_port};

pub(super) struct LazyTls {
    extra_certificates: Vec<u8>,
    system_roots: bool,
    // A fault in the settings stays one, so it is kept like the connector would be.
    connector: OnceLock<Result<TlsConnector, String>>,
}

impl LazyTls {
    pub(super) fn new(extra_certificates: Vec<u8>, system_roots: bool) -> Self {
        Self { extra_certificates, system_roots, connector: OnceLock::new() }
    }

    pub(super) async fn handshake(&self, url: &Uri, tcp: TcpStream) -> Result<TlsStream<TcpStream>, HttpError> {
        let connector = self.connector.get_or_init(|| self.set_up()).as_ref();
        let connector = connector.map_err(|reason| HttpError::InvalidSetting { reason: reason.clone() })?;
        let name = server_name(url)?;
        connector.connect(name, tcp).await.map_err(|error| HttpError::of_handshake(&error, host_and_port(url)))
    }

    fn set_up(&self) -> Result<TlsConnector, String> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?
            .with_root_certificates(self.roots()?)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        if !self.extra_certificates.is_empty() {
            add_pem(&mut roots, &self.extra_certificates)
                .map_err(|reason| format!("the extra certificates cannot be used: {reason}"))?;
        }
        if self.system_roots {
            // This reads files, once and for milliseconds. What cannot be read there is not reported here: the
            // handshake will say whether something was missing.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Ok(roots)
    }

    #[cfg(test)]
    pub(super) fn is_set_up(&self) -> bool {
        self.connector.get().is_some()
    }
}

/// The cryptography that is used: never the process-wide default, which belongs to the embedding program.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn add_pem(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), String> {
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.len() == before { Err("no PEM certificate in them".to_owned()) } else { Ok(()) }
}

fn server_name(url: &Uri) -> Result<ServerName<'static>, HttpError> {
    let host = url.host().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned())
        .map_err(|_| HttpError::InvalidRequest { reason: format!("`{host}` is not the name of a server") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_certificates_that_are_none_are_a_fault_of_the_settings() {
        let cases: [&[u8]; 3] = [
            b"not PEM at all",
            b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n",
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ];
        for pem in cases {
            let reason = LazyTls::new(pem.to_vec(), false).roots().unwrap_err();
            assert!(reason.starts_with("the extra certificates cannot be used: "), "{reason}");
        }
    }

    #[test]
    fn a_server_may_be_named_by_an_address() {
        for url in ["https://[::1]:8443/", "https://127.0.0.1/", "https://api.example/"] {
            assert!(server_name(&Uri::from_static(url)).is_ok(), "{url}");
        }
        assert!(server_name(&Uri::from_static("https://a..b/")).is_err());
    }
}
