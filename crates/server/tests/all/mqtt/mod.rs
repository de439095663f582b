//! MQTT, as clients see it: through the packets of `rumqttc`, and its clients.

mod basics;
mod clients;
mod conformance;
mod kills;
mod malformed;
mod measured;
mod passing;
mod raw;
mod retained;
mod rights;
mod sessions;
mod shared;
mod statements;
mod statements_connect;
mod statements_publish;
mod statements_v3;
mod transports;
mod wills;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use esker_server::Config;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, Connect, ConnectProperties, ConnectReturnCode, Disconnect, DisconnectProperties,
    DisconnectReasonCode, Filter, LastWill, Login, Packet, PubAck, PubAckReason, Publish,
    PublishProperties, RetainForwardRule, SubAck, Subscribe, SubscribeProperties,
    SubscribeReasonCode, Unsubscribe,
};

use crate::common::Served;

/// How long a test waits for what has to come.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn config() -> Config {
    Config {
        mqtt: Some("127.0.0.1:0".parse().unwrap()),
        ..Config::default()
    }
}

pub(super) fn served() -> Served {
    Served::with(config())
}

/// What carries packets.
pub(super) trait Wire: Read + Write + Send {}

impl<S: Read + Write + Send> Wire for S {}

/// A connection whose reads wait for a moment only.
pub(super) fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    stream
}

/// Reads until the connection has ended.
pub(super) fn read_to_end(stream: &mut dyn Wire, all: &mut Vec<u8>) {
    let until = Instant::now() + PATIENCE;
    let mut buffer = [0; 4096];
    loop {
        assert!(Instant::now() < until, "the connection does not end");
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(len) => all.extend_from_slice(&buffer[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

/// A client of MQTT 5 that does what a test says, and nothing else.
pub(super) struct Client {
    stream: Box<dyn Wire>,
    input: BytesMut,
    id: u16,
}

/// How a client connects.
pub(super) struct Options {
    pub(super) client: String,
    pub(super) clean: bool,
    pub(super) keep_alive: u16,
    pub(super) properties: ConnectProperties,
    pub(super) will: Option<LastWill>,
    pub(super) login: Option<(String, String)>,
}

impl Options {
    pub(super) fn new(client: &str) -> Options {
        Options {
            client: client.to_string(),
            clean: true,
            keep_alive: 0,
            properties: ConnectProperties::new(),
            will: None,
            login: None,
        }
    }

    /// A session that lives so many seconds after its connection.
    pub(super) fn lasting(client: &str, seconds: u32) -> Options {
        let mut options = Options::new(client);
        options.clean = false;
        options.properties.session_expiry_interval = Some(seconds);
        options
    }
}

impl Client {
    pub(super) fn raw(address: SocketAddr) -> Client {
        Client::over(Box::new(connected(address)))
    }

    pub(super) fn over(stream: Box<dyn Wire>) -> Client {
        Client {
            stream,
            input: BytesMut::new(),
            id: 0,
        }
    }

    /// Connects, and says what the server answers.
    pub(super) fn try_open(address: SocketAddr, options: Options) -> (Client, ConnAck) {
        Client::try_over(Box::new(connected(address)), options)
    }

    pub(super) fn try_over(stream: Box<dyn Wire>, options: Options) -> (Client, ConnAck) {
        let mut client = Client::over(stream);
        let connect = Connect {
            keep_alive: options.keep_alive,
            client_id: options.client,
            clean_start: options.clean,
            properties: Some(options.properties),
        };
        let login = options
            .login
            .map(|(user, password)| Login::new(user, password));
        client.send(&Packet::Connect(connect, options.will, login));
        match client.next() {
            Packet::ConnAck(answer) => (client, answer),
            other => panic!("{other:?}"),
        }
    }

    /// Connects; returns whether the session was there.
    pub(super) fn open(address: SocketAddr, options: Options) -> (Client, bool) {
        let (client, answer) = Client::try_open(address, options);
        assert_eq!(answer.code, ConnectReturnCode::Success, "{answer:?}");
        (client, answer.session_present)
    }

    pub(super) fn new(address: SocketAddr, client: &str) -> Client {
        Client::open(address, Options::new(client)).0
    }

    pub(super) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    pub(super) fn send(&mut self, packet: &Packet) {
        let mut bytes = BytesMut::new();
        packet.write(&mut bytes, None).unwrap();
        self.send_bytes(&bytes);
    }

    /// Reads once. False if the connection has ended.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(len) => {
                self.input.extend_from_slice(&buffer[..len]);
                true
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                true
            }
            Err(_) => false,
        }
    }

    fn parsed(&mut self) -> Option<Packet> {
        use rumqttc::v5::mqttbytes::Error;
        match Packet::read(&mut self.input, None) {
            Ok(packet) => Some(packet),
            Err(Error::InsufficientBytes(_)) => None,
            Err(error) => panic!("{error:?} in {:?}", self.input),
        }
    }

    /// The next packet within a while; `None` if there is none.
    pub(super) fn next_within(&mut self, wait: Duration) -> Option<Packet> {
        let until = Instant::now() + wait;
        loop {
            if let Some(packet) = self.parsed() {
                return Some(packet);
            }
            if Instant::now() > until || !self.read() {
                return None;
            }
        }
    }

    pub(super) fn next(&mut self) -> Packet {
        self.next_within(PATIENCE).expect("the next packet")
    }

    /// The next packet, which is a publication.
    pub(super) fn publication(&mut self) -> Publish {
        match self.next() {
            Packet::Publish(publish) => publish,
            other => panic!("{other:?}"),
        }
    }

    /// The next publication's topic and payload; acknowledged if it wants to be.
    pub(super) fn receive(&mut self) -> (String, String) {
        let publish = self.publication();
        if publish.qos == QoS::AtLeastOnce {
            self.acknowledge(publish.pkid);
        }
        (topic(&publish), payload(&publish))
    }

    /// Fails if anything came that was sent before the answer to a ping.
    pub(super) fn nothing(&mut self) {
        self.send(&Packet::PingReq(rumqttc::v5::mqttbytes::v5::PingReq));
        match self.next() {
            Packet::PingResp(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the end of the connection; returns the DISCONNECT before it.
    pub(super) fn ended(&mut self) -> Option<Disconnect> {
        let mut last = None;
        let until = Instant::now() + PATIENCE;
        loop {
            while let Some(packet) = self.parsed() {
                if let Packet::Disconnect(disconnect) = packet {
                    last = Some(disconnect);
                }
            }
            if !self.read() {
                while let Some(packet) = self.parsed() {
                    if let Packet::Disconnect(disconnect) = packet {
                        last = Some(disconnect);
                    }
                }
                return last;
            }
            assert!(Instant::now() < until, "the connection does not end");
        }
    }

    /// The code of the DISCONNECT with which the server ends the connection.
    pub(super) fn ended_with(&mut self) -> DisconnectReasonCode {
        self.ended().expect("DISCONNECT").reason_code
    }

    pub(super) fn acknowledge(&mut self, id: u16) {
        self.send(&Packet::PubAck(PubAck::new(id, None)));
    }

    fn next_id(&mut self) -> u16 {
        self.id += 1;
        self.id
    }

    pub(super) fn subscribe_with(
        &mut self,
        filter: Filter,
        properties: Option<SubscribeProperties>,
    ) -> SubAck {
        let mut subscribe = Subscribe::new(filter, properties);
        subscribe.pkid = self.next_id();
        self.send(&Packet::Subscribe(subscribe));
        match self.next() {
            Packet::SubAck(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn subscribe(&mut self, filter: &str, qos: QoS) {
        let answer = self.subscribe_with(Filter::new(filter, qos), None);
        assert_eq!(answer.return_codes, [SubscribeReasonCode::Success(qos)]);
    }

    /// Subscribes with user properties.
    pub(super) fn subscribe_to(&mut self, filter: &str, user: &[(&str, &str)]) -> SubAck {
        let owned = user
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        let properties = SubscribeProperties {
            id: None,
            user_properties: owned.collect(),
        };
        self.subscribe_with(Filter::new(filter, QoS::AtLeastOnce), Some(properties))
    }

    pub(super) fn unsubscribe(&mut self, filter: &str) {
        let mut unsubscribe = Unsubscribe::new(filter, None);
        unsubscribe.pkid = self.next_id();
        self.send(&Packet::Unsubscribe(unsubscribe));
        match self.next() {
            Packet::UnsubAck(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Publishes; with QoS 1 waits until it is acknowledged.
    pub(super) fn publish_packet(&mut self, mut publish: Publish) -> Option<PubAckReason> {
        if publish.qos == QoS::AtMostOnce {
            self.send(&Packet::Publish(publish));
            return None;
        }
        publish.pkid = self.next_id();
        self.send(&Packet::Publish(publish));
        match self.next() {
            Packet::PubAck(answer) => Some(answer.reason),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn publish_with(
        &mut self,
        topic: &str,
        payload: &str,
        change: impl FnOnce(&mut Publish, &mut PublishProperties),
    ) {
        let mut publish = Publish::new(topic, QoS::AtLeastOnce, payload.to_string(), None);
        let mut properties = PublishProperties::default();
        change(&mut publish, &mut properties);
        publish.properties = Some(properties);
        let answer = self.publish_packet(publish);
        assert!(
            answer.is_none_or(|answer| answer == PubAckReason::Success),
            "{answer:?}"
        );
    }

    /// Publishes with QoS 1, without waiting for the answer.
    pub(super) fn publish_later(&mut self, topic: &str, payload: &str) {
        let mut publish = Publish::new(topic, QoS::AtLeastOnce, payload.to_string(), None);
        publish.pkid = self.next_id();
        self.send(&Packet::Publish(publish));
    }

    /// The next publication; an answer to one of its own may come before.
    pub(super) fn receive_behind_answer(&mut self) -> (String, String) {
        loop {
            match self.next() {
                Packet::PubAck(_) => {}
                Packet::Publish(publish) => {
                    self.acknowledge(publish.pkid);
                    return (topic(&publish), payload(&publish));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub(super) fn publish(&mut self, topic: &str, payload: &str) {
        self.publish_with(topic, payload, |_, _| {});
    }

    pub(super) fn disconnect(mut self, session_expiry: Option<u32>) {
        let properties = session_expiry.map(|seconds| DisconnectProperties {
            session_expiry_interval: Some(seconds),
            reason_string: None,
            user_properties: Vec::new(),
            server_reference: None,
        });
        let reason_code = DisconnectReasonCode::NormalDisconnection;
        self.send(&Packet::Disconnect(Disconnect {
            reason_code,
            properties,
        }));
        self.ended();
    }
}

pub(super) fn topic(publish: &Publish) -> String {
    String::from_utf8(publish.topic.to_vec()).unwrap()
}

pub(super) fn payload(publish: &Publish) -> String {
    String::from_utf8(publish.payload.to_vec()).unwrap()
}

pub(super) fn filter(text: &str, qos: QoS, change: impl FnOnce(&mut Filter)) -> Filter {
    let mut filter = Filter::new(text, qos);
    change(&mut filter);
    filter
}

pub(super) fn not_retained(filter: &mut Filter) {
    filter.retain_forward_rule = RetainForwardRule::Never;
}

pub(super) fn pair(topic: &str, payload: &str) -> (String, String) {
    (topic.to_string(), payload.to_string())
}
