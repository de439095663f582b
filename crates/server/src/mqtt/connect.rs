//! CONNECT: who the client is, and its session.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use esker::Durability;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::begun::{Begun, take_out};
use super::connection::{Connection, Ended, RECEIVE_MAXIMUM, TOPIC_ALIASES};
use super::encode::{Accepted, Encoder};
use super::filter;
use super::kept::{self, StoredSession, StoredSubscription, StoredWill};
use super::outgoing::Outgoing;
use super::packet::{Connect, Decoder, Packet, Will};
use super::publish::may_publish;
use super::reason::{Reason, Refusal, refuse};
use super::session::{Session, join_all};
use super::shared::{Mqtt, source_of};
use super::source::Wakeup;
use super::version::Version;
use crate::access::{Caller, Role};
use crate::metrics::Carried;
use crate::problem::Problem;

/// How long a client may take to send CONNECT.
const TO_CONNECT: Duration = Duration::from_secs(10);

/// How long a connection waits for the former one of its session to end.
const TO_TAKE_OVER: Duration = Duration::from_secs(40);

/// The largest CONNECT packet.
const MOST: u32 = 64 << 10;

/// The first byte of CONNECT.
const CONNECT: u8 = 0x10;

/// The longest client identifier, in bytes.
const LONGEST_CLIENT: usize = 1024;

/// Serves a connection until it ends.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(
    mqtt: Arc<Mqtt>,
    mut stream: S,
    carried: Carried,
    peer: SocketAddr,
    mut ending: watch::Receiver<bool>,
) {
    let mut decoder = Decoder::new(MOST);
    let read = read_connect(&mut stream, &mut decoder);
    let read = tokio::select! {
        _ = ending.wait_for(|ending| *ending) => return,
        read = read => read,
    };
    let (connect, rest) = match read {
        Ok(Some(read)) => read,
        Ok(None) => return,
        Err(refusal) => {
            mqtt.measured().refused(refusal.reason.name());
            if let Some(version) = refusal.version {
                refuse_connect(&mut stream, &encoder(version, u32::MAX), &refusal).await;
            }
            tracing::debug!(%peer, "refused: {}", refusal.why);
            return;
        }
    };
    let encoder = Encoder {
        version: connect.version,
        most: connect.maximum_packet_size,
        wants_reasons: connect.wants_reasons,
    };
    let begun = match begin(&mqtt, &encoder, connect, peer).await {
        Ok(begun) => begun,
        Err(refusal) => {
            mqtt.measured().refused(refusal.reason.name());
            tracing::debug!(%peer, "refused: {}", refusal.why);
            refuse_connect(&mut stream, &encoder, &refusal).await;
            return;
        }
    };
    decoder.connected(encoder.version, mqtt.limits.packet_size());
    let mut out = Vec::new();
    encoder.accept(&mut out, &begun.accepted());
    let _open = mqtt.measured().opened(encoder.version.name(), carried);
    let mut connection = Connection::new(mqtt, stream, decoder, encoder, out, begun, ending);
    let ended = connection.run(rest).await;
    tracing::debug!(%peer, client = connection.client(), "ended: {ended}");
    connection.mqtt.measured().ended(ended.name());
    connection.end(&ended).await;
}

fn encoder(version: Version, most: u32) -> Encoder {
    Encoder {
        version,
        most,
        wants_reasons: true,
    }
}

async fn refuse_connect<S: AsyncWrite + Unpin>(stream: &mut S, encoder: &Encoder, why: &Refusal) {
    let mut out = Vec::new();
    encoder.refuse_connect(&mut out, why);
    // A client that does not read the answer has gone, or will be.
    let _ = timeout(TO_CONNECT, async {
        stream.write_all(&out).await?;
        stream.flush().await?;
        stream.shutdown().await
    })
    .await;
}

/// Reads CONNECT. Returns what came behind it, too; `None` if the client has gone.
async fn read_connect<S: AsyncRead + Unpin>(
    stream: &mut S,
    decoder: &mut Decoder,
) -> Result<Option<(Connect, Vec<u8>)>, Refusal> {
    let until = Instant::now() + TO_CONNECT;
    let mut buffer = vec![0; 2048];
    let mut is_begun = false;
    loop {
        let read = timeout_at(until, stream.read(&mut buffer)).await;
        let Ok(Ok(read @ 1..)) = read else {
            return Ok(None);
        };
        let mut data = buffer.get(..read).unwrap_or_default();
        if !std::mem::replace(&mut is_begun, true) && data.first() != Some(&CONNECT) {
            // Not MQTT, perhaps: there is no use in waiting for the rest of a packet.
            return refuse(Reason::ProtocolError, "the first packet is CONNECT");
        }
        match decoder.next(&mut data)? {
            Some(Packet::Connect(connect)) => return Ok(Some((*connect, data.to_vec()))),
            Some(_) => return refuse(Reason::ProtocolError, "the first packet is CONNECT"),
            None => {}
        }
    }
}

impl Begun {
    fn accepted(&self) -> Accepted<'_> {
        Accepted {
            is_session_present: self.is_present,
            assigned_client: self.assigned.as_deref(),
            session_expiry: self.expiry,
            receive_maximum: RECEIVE_MAXIMUM,
            topic_alias_maximum: TOPIC_ALIASES,
            maximum_packet_size: self.maximum_packet_size,
        }
    }
}

/// Checks that the client takes a CONNACK with all that it may have to say.
fn check_size(encoder: &Encoder, assigned: Option<&str>) -> Result<(), Refusal> {
    let accepted = Accepted {
        is_session_present: false,
        assigned_client: assigned,
        session_expiry: Some(0),
        receive_maximum: RECEIVE_MAXIMUM,
        topic_alias_maximum: TOPIC_ALIASES,
        maximum_packet_size: 0,
    };
    if encoder.can_accept(&accepted) {
        return Ok(());
    }
    let why = "CONNACK is larger than the client's Maximum Packet Size";
    refuse(Reason::PacketTooLarge, why)
}

async fn begin(
    mqtt: &Arc<Mqtt>,
    encoder: &Encoder,
    mut connect: Connect,
    peer: SocketAddr,
) -> Result<Begun, Refusal> {
    if connect.has_authentication_method {
        return refuse(Reason::BadAuthenticationMethod, "no authentication methods");
    }
    let assigned = check_client(&mut connect)?;
    check_size(encoder, assigned.as_deref())?;
    let (user, password) = (connect.user.take(), connect.password.take());
    let caller = {
        let _turn = if mqtt.users.is_needed() {
            mqtt.passwords.acquire().await.ok()
        } else {
            None
        };
        let caller = mqtt.call(move |mqtt| {
            let tokens = &mqtt.app.tokens;
            Ok((mqtt.users).caller(tokens, user.as_deref(), password.as_deref()))
        });
        caller.await.map_err(Refusal::from)??
    };
    let publisher = (connect.version == Version::V5).then(|| hash_of(&connect.client));
    let will = (connect.will.take()).map(|will| check_will(will, &caller, publisher));
    let will = will.transpose()?;
    let most = mqtt.limits.session_expiry_seconds();
    let expiry = connect.session_expiry.min(most);
    if (expiry > 0 || will.is_some())
        && mqtt.sessions.len() >= mqtt.limits.sessions
        && !mqtt.sessions.is_known(&connect.client)
    {
        return refuse(Reason::QuotaExceeded, "there are too many sessions");
    }
    let user = caller.name().to_string();
    let claim = timeout(TO_TAKE_OVER, mqtt.sessions.claim(&connect.client, &user)).await;
    let Ok(claim) = claim else {
        return refuse(Reason::ServerBusy, "the former connection does not end");
    };
    let Some(claim) = claim else {
        return refuse(Reason::NotAuthorized, "the session is another user's");
    };
    tracing::debug!(%peer, client = connect.client, user = caller.name(), "connected");
    let is_clean = connect.clean_start;
    let client = connect.client.clone();
    let stored = mqtt
        .call(move |mqtt| mqtt.former(&client, is_clean))
        .await?;
    let mut session = Session::new(connect.client.clone(), user, expiry, will);
    let wakeup = Arc::new(Wakeup::default());
    let is_present = stored.is_some();
    if let Some(stored) = stored {
        resume(mqtt, &mut session, stored, &caller).await?;
    }
    let written = if session.is_stored() {
        let record = session.stored(None);
        (mqtt.call(move |mqtt| mqtt.kept.put_session(&record, Durability::Sync))).await
    } else if is_present {
        let client = connect.client.clone();
        mqtt.call(move |mqtt| mqtt.kept.delete_session(&client))
            .await
    } else {
        Ok(())
    };
    if let Err(problem) = written {
        take_out(mqtt, &session);
        return Err(problem.into());
    }
    join_all(&session, &wakeup);
    let keep_alive = u64::from(connect.keep_alive) * 1500;
    Ok(Begun {
        session,
        caller,
        claim,
        wakeup,
        publisher,
        keep_alive: (keep_alive > 0).then(|| Duration::from_millis(keep_alive)),
        receive_maximum: connect.receive_maximum.min(mqtt.limits.in_flight),
        is_present,
        assigned,
        expiry: (expiry != connect.session_expiry).then_some(expiry),
        maximum_packet_size: mqtt.limits.packet_size(),
    })
}

/// Checks the client identifier; assigns one if it is empty.
fn check_client(connect: &mut Connect) -> Result<Option<String>, Refusal> {
    if connect.client.len() > LONGEST_CLIENT {
        return refuse(
            Reason::ClientNotValid,
            "a client identifier has at most 1024 bytes",
        );
    }
    if !connect.client.is_empty() {
        return Ok(None);
    }
    if connect.version == Version::V3 && !connect.clean_start {
        return refuse(
            Reason::ClientNotValid,
            "a session that is kept needs a client identifier",
        );
    }
    // The hashes of a new key cannot be guessed.
    let number = |n| {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(n);
        hasher.finish()
    };
    connect.client = format!("auto-{:016x}{:016x}", number(0), number(1));
    Ok(Some(connect.client.clone()))
}

fn hash_of(client: &str) -> u64 {
    let hash: [u8; 32] = Sha256::digest(client.as_bytes()).into();
    hash.first_chunk()
        .map_or(0, |first| u64::from_le_bytes(*first))
}

fn check_will(will: Will, caller: &Caller, publisher: Option<u64>) -> Result<StoredWill, Refusal> {
    if will.publish.qos > 1 {
        return refuse(Reason::QosNotSupported, "the Maximum QoS is 1");
    }
    filter::check_topic(&will.publish.topic)
        .map_err(|why| Refusal::new(Reason::TopicNameInvalid, why))?;
    may_publish(caller, &will.publish.topic)?;
    Ok(StoredWill {
        delay: will.delay,
        publication: Outgoing::of(will.publish, publisher)?.into(),
    })
}

impl Mqtt {
    /// The stored session of a client whose connection begins, unless it is to begin anew. Calls
    /// the store.
    fn former(&self, client: &str, is_clean: bool) -> Result<Option<StoredSession>, Problem> {
        let Some(mut session) = self.kept.session(client)? else {
            return Ok(None);
        };
        let now = kept::now();
        let away = super::sessions::Away::of(&session, session.left.unwrap_or(now));
        let is_over = session.expiry == 0 || away.is_over(now);
        let ends = is_clean || is_over;
        // A will that waits is published at the end of its session, and not if the client is back
        // in time.
        if session.left.is_some()
            && let Some(will) = session.will.take_if(|will| ends || will.delay == 0)
        {
            self.publish_will(will.publication.into())?;
        }
        if ends {
            self.forget(&session)?;
            return Ok(None);
        }
        Ok(Some(session))
    }
}

/// Takes a stored session up.
async fn resume(
    mqtt: &Arc<Mqtt>,
    session: &mut Session,
    mut stored: StoredSession,
    caller: &Caller,
) -> Result<(), Refusal> {
    // Rights may have changed since.
    let is_allowed = |of: &StoredSubscription| {
        let filter = filter::Filter::parse(&of.filter);
        filter.is_ok_and(|filter| caller.may_topic(Role::Read, filter.fixed()).is_ok())
    };
    let (kept, lost): (_, Vec<_>) = stored.subscriptions.into_iter().partition(is_allowed);
    stored.subscriptions = kept;
    mqtt.leave_shares(&stored.client, &lost);
    let client = stored.client.clone();
    let resumed = session.resume(stored, |filter, of| {
        if filter.share.is_some() {
            let begin = super::source::Begin::After(of.position);
            let joined = (mqtt.shares).join(&mqtt.router, &client, filter, &of.conditions, begin);
            return joined.map(|(source, _)| source);
        }
        let source = source_of(filter, of)?;
        mqtt.router.add(&filter.text, &source);
        Ok(source)
    });
    let position = mqtt.call(|mqtt| Ok(mqtt.kept.position())).await;
    match (resumed, position) {
        (Ok(()), Ok(position)) => {
            for of in session
                .subscriptions
                .values()
                .filter(|of| of.qos == 0 && !of.is_shared())
            {
                of.source.start(position);
            }
            Ok(())
        }
        (resumed, position) => {
            take_out(mqtt, session);
            position.map_err(Refusal::from)?;
            resumed.map_err(|why| Refusal::new(Reason::Unspecified, why))
        }
    }
}

impl Ended {
    /// The reason, for measurements.
    fn name(&self) -> &'static str {
        match self {
            Ended::Disconnected { .. } => "disconnected",
            Ended::Lost(_) => "lost",
            Ended::Refused(refusal) => refusal.reason.name(),
        }
    }

    /// The client has said that its will is not to be published.
    pub(super) fn is_regular(&self) -> bool {
        matches!(self, Ended::Disconnected { has_will: false })
    }
}
