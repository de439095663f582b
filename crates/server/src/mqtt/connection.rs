//! The connection of a client, from CONNACK to its end.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker::{Durability, Seq};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::begun::{Begun, take_out};
use super::encode::Encoder;
use super::outgoing::Outgoing;
use super::packet::{Decoder, Disconnect, Packet, Publish};
use super::publish::may_publish;
use super::reason::{Reason, Refusal, refuse};
use super::session::Session;
use super::sessions::{Away, Claim};
use super::shared::Mqtt;
use super::source::Wakeup;
use super::version::Version;
use super::{filter, kept};
use crate::access::Caller;

/// How many publications of a client may be without acknowledgement.
pub(super) const RECEIVE_MAXIMUM: u16 = 1024;

/// How many aliases of topics a client may have.
pub(super) const TOPIC_ALIASES: u16 = 16;

/// The most publications that are written with one call.
const MOST_PUBLISHED: usize = 256;

/// Bytes that are read at once: of a client that is silent, and of one that sends much.
const SMALL: usize = 2 << 10;
const LARGE: usize = 64 << 10;

/// How long acknowledgements wait to be written to the record of a session.
const TO_WRITE: Duration = Duration::from_secs(1);

/// How long the last packets may take.
const TO_LEAVE: Duration = Duration::from_secs(5);

/// A publication that was read and is not written.
struct Pending {
    id: u16,
    outgoing: Outgoing,
}

/// A connection.
pub(super) struct Connection<S> {
    pub(super) mqtt: Arc<Mqtt>,
    stream: S,
    decoder: Decoder,
    pub(super) encoder: Encoder,
    /// What is to be sent.
    pub(super) out: Vec<u8>,
    pub(super) session: Session,
    pub(super) caller: Caller,
    claim: Claim,
    pub(super) wakeup: Arc<Wakeup>,
    pub(super) publisher: Option<u64>,
    keep_alive: Option<Duration>,
    /// Becomes true at the end of the server.
    ending: watch::Receiver<bool>,
    pub(super) receive_maximum: usize,
    aliases: Vec<Option<String>>,
    pending: Vec<Pending>,
    /// Subscriptions with something that wait for acknowledgements.
    pub(super) blocked: BTreeSet<u32>,
    /// The subscription that was served last.
    pub(super) last: u32,
    /// The number of its last publication that was stored.
    pub(super) last_stored: Seq,
    /// True once its stored packets were sent again.
    pub(super) is_repeated: bool,
    /// When the record of the session is to be written.
    pub(super) is_due: Option<Instant>,
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The client sent DISCONNECT.
    Disconnected { has_will: bool },
    /// It has gone.
    Lost(String),
    /// The server has ended it.
    Refused(Refusal),
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Ended {
        Ended::Refused(refusal)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Disconnected { .. } => f.write_str("DISCONNECT"),
            Ended::Lost(why) => f.write_str(why),
            Ended::Refused(refusal) => f.write_str(&refusal.why),
        }
    }
}

/// What a connection waits for.
enum Event {
    Read(std::io::Result<usize>),
    Woken,
    WriteRecord,
    Silent,
    Wanted,
    Ending,
}

/// Writes bytes, also those that a stream with a buffer of its own would keep.
async fn write<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    pub(super) fn new(
        mqtt: Arc<Mqtt>,
        stream: S,
        decoder: Decoder,
        encoder: Encoder,
        out: Vec<u8>,
        begun: Begun,
        ending: watch::Receiver<bool>,
    ) -> Connection<S> {
        Connection {
            // Also of a former connection of this client.
            last_stored: mqtt.published.load(Ordering::Relaxed),
            mqtt,
            ending,
            stream,
            decoder,
            encoder,
            out,
            is_repeated: begun.session.packets.is_empty(),
            session: begun.session,
            caller: begun.caller,
            claim: begun.claim,
            wakeup: begun.wakeup,
            publisher: begun.publisher,
            keep_alive: begun.keep_alive,
            receive_maximum: usize::from(begun.receive_maximum),
            aliases: Vec::new(),
            pending: Vec::new(),
            blocked: BTreeSet::new(),
            last: 0,
            is_due: None,
        }
    }

    pub(super) fn client(&self) -> &str {
        &self.session.client
    }

    /// Serves the client; `rest` was read behind CONNECT.
    pub(super) async fn run(&mut self, rest: Vec<u8>) -> Ended {
        match self.serve(rest).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn serve(&mut self, rest: Vec<u8>) -> Result<std::convert::Infallible, Ended> {
        self.take(&rest).await?;
        drop(rest);
        let mut buffer = vec![0; SMALL];
        let mut heard = Instant::now();
        loop {
            let has_more = self.deliver().await?;
            self.flush().await?;
            let silent = self.keep_alive.map(|most| heard + most);
            match self.event(&mut buffer, has_more, silent).await {
                Event::Read(Ok(0)) => return Err(Ended::Lost("the client has gone".to_string())),
                Event::Read(Err(error)) => return Err(Ended::Lost(error.to_string())),
                Event::Read(Ok(read)) => {
                    heard = Instant::now();
                    let data = buffer.get(..read).unwrap_or_default();
                    self.take(data).await?;
                    if read == buffer.len() && read < LARGE {
                        buffer = vec![0; LARGE];
                    } else if read < SMALL && buffer.len() > SMALL {
                        buffer = vec![0; SMALL];
                    }
                }
                Event::Woken => {}
                Event::WriteRecord => self.write_record(Durability::Os).await?,
                Event::Silent => {
                    let why = "nothing came for 1.5 times the keep-alive";
                    return Err(Refusal::new(Reason::KeepAliveTimeout, why).into());
                }
                Event::Wanted => {
                    let why = "another connection has taken the session over";
                    return Err(Refusal::new(Reason::TakenOver, why).into());
                }
                Event::Ending => {
                    return Err(Refusal::new(Reason::ShuttingDown, "the server ends").into());
                }
            }
        }
    }

    /// Waits for something to do; with `has_more` only looks.
    async fn event(&mut self, buffer: &mut [u8], has_more: bool, silent: Option<Instant>) -> Event {
        let at = |time: Option<Instant>| async move {
            match time {
                Some(time) => sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.ending.wait_for(|ending| *ending) => Event::Ending,
            () = self.claim.wanted.notified() => Event::Wanted,
            read = self.stream.read(buffer) => Event::Read(read),
            () = at(silent) => Event::Silent,
            () = self.wakeup.notify.notified(), if !has_more => Event::Woken,
            () = std::future::ready(()), if has_more => Event::Woken,
            () = at(self.is_due) => Event::WriteRecord,
        }
    }

    /// Sends what is to be sent.
    async fn flush(&mut self) -> Result<(), Ended> {
        if self.out.is_empty() {
            return Ok(());
        }
        let lost = tokio::select! {
            biased;
            written = timeout(self.mqtt.idle, write(&mut self.stream, &self.out)) => match written {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the client does not read".to_string()),
            },
            _ = self.ending.wait_for(|ending| *ending) => {
                Some("the server ends, and the client does not read".to_string())
            }
            () = self.claim.wanted.notified() => {
                Some("the client does not read, and has another connection".to_string())
            }
        };
        if let Some(why) = lost {
            // A packet may have been sent in part: nothing can follow it.
            self.out.clear();
            return Err(Ended::Lost(why));
        }
        let measured = self.mqtt.measured();
        measured.sent_bytes.inc_by(self.out.len() as u64);
        if self.out.capacity() > SMALL {
            self.out = Vec::new();
        } else {
            self.out.clear();
        }
        Ok(())
    }

    /// Takes what was read.
    async fn take(&mut self, mut data: &[u8]) -> Result<(), Ended> {
        (self.mqtt.measured().received_bytes).inc_by(data.len() as u64);
        loop {
            let packet = match self.decoder.next(&mut data) {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(refusal) => {
                    // What came before holds.
                    self.write_pending().await?;
                    return Err(refusal.into());
                }
            };
            match packet {
                Packet::Publish(publish) => self.publish(publish).await?,
                other => {
                    self.write_pending().await?;
                    self.packet(other).await?;
                }
            }
            if self.out.len() > LARGE {
                self.flush().await?;
            }
        }
        self.write_pending().await
    }

    async fn packet(&mut self, packet: Packet) -> Result<(), Ended> {
        match packet {
            Packet::Puback(id) => self.acknowledged(id),
            Packet::Subscribe(subscribe) => self.subscribe(subscribe).await?,
            Packet::Unsubscribe(unsubscribe) => self.unsubscribe(unsubscribe).await?,
            Packet::Pingreq => {
                self.encoder.pingresp(&mut self.out);
                self.end_subscriptions().await?;
            }
            Packet::Disconnect(disconnect) => return Err(self.disconnected(&disconnect)),
            Packet::Connect(_) | Packet::Publish(_) => {
                return Err(Refusal::new(Reason::ProtocolError, "a second CONNECT").into());
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self, id: u16) {
        if self.session.acknowledge(id).is_none() {
            return;
        }
        if self.session.is_stored() && self.is_due.is_none() {
            self.is_due = Some(Instant::now() + TO_WRITE);
        }
        for number in std::mem::take(&mut self.blocked) {
            if let Some(of) = self.session.subscriptions.get(&number)
                && of.is_shared()
            {
                of.source.pause(&self.wakeup, false);
            }
            self.wakeup.add(number);
        }
    }

    fn disconnected(&mut self, disconnect: &Disconnect) -> Ended {
        if let Some(seconds) = disconnect.session_expiry {
            if self.session.expiry == 0 && seconds > 0 {
                let why = "the session was to end with the connection";
                return Refusal::new(Reason::ProtocolError, why).into();
            }
            self.session.expiry = seconds.min(self.mqtt.limits.session_expiry_seconds());
        }
        Ended::Disconnected {
            has_will: disconnect.reason != 0,
        }
    }

    async fn publish(&mut self, mut packet: Publish) -> Result<(), Ended> {
        if packet.qos > 1 {
            return Err(Refusal::new(Reason::QosNotSupported, "the Maximum QoS is 1").into());
        }
        self.resolve_alias(&mut packet)?;
        filter::check_topic(&packet.topic)
            .map_err(|why| Refusal::new(Reason::TopicNameInvalid, why))?;
        let (id, qos) = (packet.id, packet.qos);
        let allowed = may_publish(&self.caller, &packet.topic);
        let outgoing = allowed.and_then(|()| Outgoing::of(packet, self.publisher));
        match outgoing {
            Ok(outgoing) => {
                let unanswered = self.pending.iter().filter(|pending| pending.id > 0).count();
                if unanswered >= usize::from(RECEIVE_MAXIMUM) {
                    let why = "more publications than the Receive Maximum";
                    return Err(Refusal::new(Reason::ReceiveMaximumExceeded, why).into());
                }
                if qos == 0 && self.pending.is_empty() && self.pass(&outgoing).await {
                    return Ok(());
                }
                self.pending.push(Pending { id, outgoing });
                if self.pending.len() >= MOST_PUBLISHED {
                    self.write_pending().await?;
                }
            }
            Err(refusal) => {
                self.write_pending().await?;
                self.refuse_publish(id, qos, refusal)?;
            }
        }
        Ok(())
    }

    /// Answers a publication that is not taken; ends the connection if it has no answer.
    fn refuse_publish(&mut self, id: u16, qos: u8, refusal: Refusal) -> Result<(), Ended> {
        if self.encoder.version == Version::V3 || qos == 0 {
            return Err(refusal.into());
        }
        (self.encoder).puback(&mut self.out, id, refusal.reason, &refusal.why);
        Ok(())
    }

    fn resolve_alias(&mut self, packet: &mut Publish) -> Result<(), Refusal> {
        let Some(alias) = packet.alias else {
            if packet.topic.is_empty() {
                return refuse(Reason::ProtocolError, "no topic and no alias");
            }
            return Ok(());
        };
        if alias == 0 || alias > TOPIC_ALIASES {
            return refuse(Reason::TopicAliasInvalid, "the alias is beyond the maximum");
        }
        self.aliases.resize(usize::from(TOPIC_ALIASES) + 1, None);
        let Some(known) = self.aliases.get_mut(usize::from(alias)) else {
            return refuse(Reason::TopicAliasInvalid, "the alias is beyond the maximum");
        };
        if packet.topic.is_empty() {
            match known {
                Some(topic) => packet.topic.clone_from(topic),
                None => return refuse(Reason::ProtocolError, "the alias has no topic"),
            }
        } else {
            *known = Some(packet.topic.clone());
        }
        Ok(())
    }

    /// Writes the publications that were read, and acknowledges them.
    async fn write_pending(&mut self) -> Result<(), Ended> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let acknowledged = self.pending.iter().filter(|pending| pending.id > 0).count();
        let measured = self.mqtt.measured();
        measured.received(0, (self.pending.len() - acknowledged) as u64);
        measured.received(1, acknowledged as u64);
        let (ids, all): (Vec<u16>, Vec<Outgoing>) = std::mem::take(&mut self.pending)
            .into_iter()
            .map(|pending| (pending.id, pending.outgoing))
            .unzip();
        let written = self.mqtt.call(move |mqtt| mqtt.publish_all(&all)).await;
        let written = written.map_err(Refusal::from)?;
        self.last_stored = self.last_stored.max(written.last);
        for (id, problem) in ids.into_iter().zip(written.errors) {
            match problem {
                None if id > 0 => (self.encoder).puback(&mut self.out, id, Reason::Success, ""),
                None => {}
                Some(problem) => {
                    self.refuse_publish(id, u8::from(id > 0), Refusal::from(problem))?;
                }
            }
        }
        Ok(())
    }

    /// Writes the record of the session.
    pub(super) async fn write_record(&mut self, durability: Durability) -> Result<(), Refusal> {
        self.is_due = None;
        if !self.session.is_stored() {
            return Ok(());
        }
        let record = self.session.stored(None);
        let put = self
            .mqtt
            .call(move |mqtt| mqtt.kept.put_session(&record, durability));
        Ok(put.await?)
    }

    /// Ends the connection: says why, publishes the will, writes or removes the session.
    pub(super) async fn end(mut self, ended: &Ended) {
        if let Ended::Refused(refusal) = ended {
            self.encoder.disconnect(&mut self.out, refusal);
        }
        // A client that does not read it does without it.
        let _ = timeout(TO_LEAVE, write(&mut self.stream, &self.out)).await;
        take_out(&self.mqtt, &self.session);
        let numbers: Vec<u32> = self.session.subscriptions.keys().copied().collect();
        for number in numbers {
            let unacknowledged = self.session.take_back(number);
            if let Some(of) = self.session.subscriptions.get(&number) {
                of.source.leave(&self.wakeup, unacknowledged);
            }
        }
        if ended.is_regular() {
            self.session.will = None;
        }
        let is_kept = self.session.expiry > 0;
        let due = self
            .session
            .will
            .take_if(|will| !is_kept || will.delay == 0);
        let left = kept::now();
        let record = self.session.stored(Some(left));
        let away = Away::of(&record, left);
        let written = self.mqtt.call(move |mqtt| {
            if let Some(will) = &due {
                mqtt.publish_will(will.publication.clone().into())?;
            }
            if is_kept {
                return mqtt.kept.put_session(&record, Durability::Sync);
            }
            mqtt.forget(&record)
        });
        let (client, user) = (&self.session.client, &self.session.user);
        match written.await {
            Ok(()) if is_kept => self.mqtt.sessions.set_away(client, user, away),
            Ok(()) => self.claim.done(),
            Err(problem) => {
                // The record is older: packets may be sent again.
                tracing::error!(client, "a session cannot be written: {}", problem.detail());
                self.mqtt.sessions.set_away(client, user, away);
            }
        }
        drop(self.claim);
        // Last, so that a client that sees it finds the session as it is.
        let _ = timeout(TO_LEAVE, self.stream.shutdown()).await;
    }
}
