//! Throw-away certificates: an authority that is made at the start, and that only the test trusts.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

pub(crate) const HTTP2: &[u8] = b"h2";
pub(crate) const HTTP1: &[u8] = b"http/1.1";

pub(crate) struct TlsIdentity {
    pub acceptor: TlsAcceptor,
    pub ca_pem: String,
}

impl TlsIdentity {
    /// A certificate for loopback and the authority that signed it. The first of `protocols` that a client knows is
    /// spoken.
    pub fn generate(protocols: &[&[u8]]) -> Self {
        Self::try_generate(protocols).expect("key generation and signing with fixed parameters work")
    }

    fn try_generate(protocols: &[&[u8]]) -> Result<Self, Box<dyn std::error::Error>> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_pem = authority.self_signed(&authority_key)?.pem();

        let key = KeyPair::generate()?;
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let mut server = CertificateParams::new(names)?;
        server.use_authority_key_identifier_extension = true;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = server.signed_by(&key, &Issuer::new(authority, authority_key))?;

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), ca_pem })
    }
}
