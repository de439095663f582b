//! Packets of clients, read by `mqtt-protocol-core`, in a form that both versions share. What the
//! library does not check is checked here.

use mqtt_protocol_core::mqtt::common::Cursor;
use mqtt_protocol_core::mqtt::connection::{
    PacketBuildResult, PacketBuilder, PacketData, RawPacket,
};
use mqtt_protocol_core::mqtt::packet::{Properties, Property, Qos, RetainHandling, v3_1_1, v5_0};
use mqtt_protocol_core::mqtt::result_code::MqttError;

use super::reason::{Reason, Refusal, refuse};
use super::version::Version;

/// A packet of a client.
#[derive(Debug)]
pub(super) enum Packet {
    Connect(Box<Connect>),
    Publish(Publish),
    Puback(u16),
    Subscribe(Subscribe),
    Unsubscribe(Unsubscribe),
    Pingreq,
    Disconnect(Disconnect),
}

#[derive(Debug)]
pub(super) struct Connect {
    pub(super) version: Version,
    pub(super) client: String,
    pub(super) clean_start: bool,
    pub(super) keep_alive: u16,
    /// Seconds; `u32::MAX` is for ever.
    pub(super) session_expiry: u32,
    pub(super) receive_maximum: u16,
    pub(super) maximum_packet_size: u32,
    /// False if it wants no reason strings.
    pub(super) wants_reasons: bool,
    pub(super) has_authentication_method: bool,
    pub(super) will: Option<Will>,
    pub(super) user: Option<String>,
    pub(super) password: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct Will {
    pub(super) publish: Publish,
    /// Seconds.
    pub(super) delay: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Publish {
    pub(super) qos: u8,
    pub(super) retain: bool,
    /// 0 with QoS 0.
    pub(super) id: u16,
    pub(super) topic: String,
    pub(super) alias: Option<u16>,
    /// Seconds.
    pub(super) expiry: Option<u32>,
    /// Properties that are passed on, encoded.
    pub(super) properties: Vec<u8>,
    /// User properties, which are among the properties, too.
    pub(super) user: Vec<(String, String)>,
    pub(super) payload: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Subscribe {
    pub(super) id: u16,
    pub(super) identifier: Option<u32>,
    pub(super) user: Vec<(String, String)>,
    pub(super) entries: Vec<Entry>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) filter: String,
    pub(super) qos: u8,
    pub(super) no_local: bool,
    pub(super) retain_as_published: bool,
    /// 0: send retained messages; 1: of new subscriptions; 2: do not.
    pub(super) retain_handling: u8,
}

#[derive(Debug)]
pub(super) struct Unsubscribe {
    pub(super) id: u16,
    pub(super) filters: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Disconnect {
    pub(super) reason: u8,
    pub(super) session_expiry: Option<u32>,
}

/// Reads the packets of a connection.
pub(super) struct Decoder {
    frames: PacketBuilder,
    version: Option<Version>,
}

impl Decoder {
    /// Packets have at most `most` bytes.
    pub(super) fn new(most: u32) -> Decoder {
        Decoder {
            frames: PacketBuilder::with_maximum_packet_size(most),
            version: None,
        }
    }

    /// The version is known, and packets may have `most` bytes.
    pub(super) fn connected(&mut self, version: Version, most: u32) {
        self.version = Some(version);
        self.frames.set_maximum_packet_size(most);
    }

    /// The next packet in `data`, which loses what was read.
    ///
    /// # Errors
    /// Why the connection has to end.
    pub(super) fn next(&mut self, data: &mut &[u8]) -> Result<Option<Packet>, Refusal> {
        loop {
            let mut cursor = Cursor::new(*data);
            let built = self.frames.feed(&mut cursor);
            let read = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
            *data = data.get(read..).unwrap_or(&[]);
            return match built {
                PacketBuildResult::Complete(raw) => self.packet(&raw).map(Some),
                // It may end at the end of the header, with the body still to be read.
                PacketBuildResult::Incomplete if read > 0 && !data.is_empty() => continue,
                PacketBuildResult::Incomplete => Ok(None),
                PacketBuildResult::Error(error) => Err(refusal(&error)),
            };
        }
    }

    fn packet(&self, raw: &RawPacket) -> Result<Packet, Refusal> {
        check_flags(raw)?;
        match (self.version, raw.packet_type()) {
            (None, 1) => connect(raw),
            (None, _) => refuse(Reason::ProtocolError, "the first packet is CONNECT"),
            (Some(_), 1) => refuse(Reason::ProtocolError, "a second CONNECT"),
            (Some(Version::V3), _) => packet_v3(raw),
            (Some(Version::V5), _) => packet_v5(raw),
        }
    }
}

/// The protocol level of a CONNECT packet, for the form of the answer if it cannot be read.
fn level(raw: &RawPacket) -> Option<u8> {
    let data = raw.data_as_slice();
    let (len, rest) = data.split_first_chunk::<2>()?;
    rest.get(usize::from(u16::from_be_bytes(*len))).copied()
}

fn check_flags(raw: &RawPacket) -> Result<(), Refusal> {
    let flags = raw.flags();
    let is_right = match raw.packet_type() {
        // QoS 3, and DUP with QoS 0.
        3 => flags & 6 != 6 && (flags & 8 == 0 || flags & 6 != 0),
        6 | 8 | 10 => flags == 2,
        _ => flags == 0,
    };
    if is_right {
        return Ok(());
    }
    refuse(
        Reason::MalformedPacket,
        "the flags of the header are reserved",
    )
}

fn refusal(error: &MqttError) -> Refusal {
    let reason = match error {
        MqttError::ProtocolError => Reason::ProtocolError,
        MqttError::PacketTooLarge => Reason::PacketTooLarge,
        MqttError::UnsupportedProtocolVersion => Reason::UnsupportedVersion,
        MqttError::ClientIdentifierNotValid => Reason::ClientNotValid,
        MqttError::TopicFilterInvalid => Reason::TopicFilterInvalid,
        MqttError::TopicNameInvalid => Reason::TopicNameInvalid,
        _ => Reason::MalformedPacket,
    };
    let why = match reason {
        Reason::PacketTooLarge => "the packet is larger than the Maximum Packet Size",
        Reason::UnsupportedVersion => "the protocol is MQTT 5 or 3.1.1",
        _ => "the packet cannot be read",
    };
    Refusal::new(reason, why)
}

fn parsed<T>(
    raw: &RawPacket,
    parse: impl FnOnce(&[u8]) -> Result<(T, usize), MqttError>,
) -> Result<T, Refusal> {
    raw.parse_exact(parse).map_err(|error| refusal(&error))
}

fn text(text: &str) -> Result<String, Refusal> {
    if text.contains('\0') {
        return refuse(Reason::MalformedPacket, "a text has a NUL character");
    }
    Ok(text.to_string())
}

fn identifier(id: u16) -> Result<u16, Refusal> {
    if id == 0 {
        return refuse(Reason::ProtocolError, "the packet identifier is 0");
    }
    Ok(id)
}

fn connect(raw: &RawPacket) -> Result<Packet, Refusal> {
    match level(raw) {
        Some(4) => connect_v3(raw),
        Some(5) => connect_v5(raw),
        Some(level) => {
            let mut refusal = Refusal::new(
                Reason::UnsupportedVersion,
                "the protocol is MQTT 5 or 3.1.1",
            );
            // Older clients know the answer of 3.1.1 alone.
            refusal.version = Some(if level > 5 { Version::V5 } else { Version::V3 });
            Err(refusal)
        }
        None => refuse(Reason::MalformedPacket, "CONNECT has no protocol level"),
    }
    .map_err(|refusal| refusal.for_connect(level(raw)))
}

/// Checks the flags of CONNECT.
fn connect_flags(raw: &RawPacket) -> Result<u8, Refusal> {
    let flags = raw.data_as_slice().get(7).copied();
    let Some(flags) = flags else {
        return refuse(Reason::MalformedPacket, "CONNECT has no flags");
    };
    let has_will = flags & 4 != 0;
    if flags & 1 != 0 || (!has_will && flags & 0x38 != 0) || flags & 0x18 == 0x18 {
        return refuse(
            Reason::MalformedPacket,
            "the flags of CONNECT are not valid",
        );
    }
    Ok(flags)
}

fn connect_v3(raw: &RawPacket) -> Result<Packet, Refusal> {
    connect_flags(raw)?;
    let packet = parsed(raw, v3_1_1::Connect::parse)?;
    let will = match (packet.will_topic(), packet.will_payload()) {
        (Some(topic), Some(payload)) => Some(Will {
            delay: 0,
            publish: Publish {
                qos: qos(packet.will_qos()),
                retain: packet.will_retain(),
                id: 0,
                topic: text(topic)?,
                alias: None,
                expiry: None,
                properties: Vec::new(),
                user: Vec::new(),
                payload: payload.to_vec(),
            },
        }),
        _ => None,
    };
    let clean_start = packet.clean_session();
    Ok(Packet::Connect(Box::new(Connect {
        version: Version::V3,
        client: text(packet.client_id())?,
        clean_start,
        keep_alive: packet.keep_alive(),
        session_expiry: if clean_start { 0 } else { u32::MAX },
        receive_maximum: u16::MAX,
        maximum_packet_size: u32::MAX,
        wants_reasons: false,
        has_authentication_method: false,
        will,
        user: packet.user_name().map(str::to_string),
        password: packet.password().map(<[u8]>::to_vec),
    })))
}

fn connect_v5(raw: &RawPacket) -> Result<Packet, Refusal> {
    let flags = connect_flags(raw)?;
    let packet = if flags & 0xc0 == 0x40 {
        // A password without a user, which MQTT 5 allows and the library does not.
        let mut data = raw.data_as_slice().to_vec();
        if let Some(flags) = data.get_mut(7) {
            *flags &= !0x40;
        }
        let read = v5_0::Connect::parse(&data).map_err(|error| refusal(&error))?;
        data.splice(read.1..read.1, [0, 0]);
        if let Some(flags) = data.get_mut(7) {
            *flags |= 0xc0;
        }
        let (packet, read) = v5_0::Connect::parse(&data).map_err(|error| refusal(&error))?;
        if read != data.len() {
            return refuse(Reason::MalformedPacket, "bytes behind the packet");
        }
        packet
    } else {
        parsed(raw, v5_0::Connect::parse)?
    };
    let mut connect = Connect {
        version: Version::V5,
        client: text(packet.client_id())?,
        clean_start: packet.clean_start(),
        keep_alive: packet.keep_alive(),
        session_expiry: 0,
        receive_maximum: u16::MAX,
        maximum_packet_size: u32::MAX,
        wants_reasons: true,
        has_authentication_method: false,
        will: None,
        user: packet
            .user_name()
            .filter(|_| flags & 0x80 != 0)
            .map(str::to_string),
        password: packet.password().map(<[u8]>::to_vec),
    };
    let mut has_authentication_data = false;
    for property in packet.props() {
        match property {
            Property::SessionExpiryInterval(seconds) => connect.session_expiry = seconds.val(),
            Property::ReceiveMaximum(most) if most.val() == 0 => {
                return refuse(Reason::ProtocolError, "Receive Maximum is 0");
            }
            Property::ReceiveMaximum(most) => connect.receive_maximum = most.val(),
            Property::MaximumPacketSize(most) if most.val() == 0 => {
                return refuse(Reason::ProtocolError, "Maximum Packet Size is 0");
            }
            Property::MaximumPacketSize(most) => connect.maximum_packet_size = most.val(),
            Property::RequestProblemInformation(wanted) => {
                connect.wants_reasons = wanted.val() == 1
            }
            Property::AuthenticationMethod(_) => connect.has_authentication_method = true,
            Property::AuthenticationData(_) => has_authentication_data = true,
            _ => {}
        }
    }
    if has_authentication_data && !connect.has_authentication_method {
        return refuse(
            Reason::ProtocolError,
            "authentication data without a method",
        );
    }
    if let (Some(topic), Some(payload)) = (packet.will_topic(), packet.will_payload()) {
        let taken = take_properties(&packet.will_props)?;
        connect.will = Some(Will {
            delay: taken.will_delay,
            publish: Publish {
                qos: qos(packet.will_qos()),
                retain: packet.will_retain(),
                id: 0,
                topic: text(topic)?,
                alias: None,
                expiry: taken.expiry,
                properties: taken.passed_on,
                user: taken.user,
                payload: payload.to_vec(),
            },
        });
    }
    Ok(Packet::Connect(Box::new(connect)))
}

fn qos(qos: Qos) -> u8 {
    match qos {
        Qos::AtMostOnce => 0,
        Qos::AtLeastOnce => 1,
        Qos::ExactlyOnce => 2,
    }
}

/// The properties of a publication or a will.
#[derive(Default)]
struct Taken {
    alias: Option<u16>,
    expiry: Option<u32>,
    will_delay: u32,
    passed_on: Vec<u8>,
    user: Vec<(String, String)>,
}

fn take_properties(properties: &Properties) -> Result<Taken, Refusal> {
    let mut taken = Taken::default();
    for property in properties {
        match property {
            Property::TopicAlias(alias) => taken.alias = Some(alias.val()),
            Property::MessageExpiryInterval(seconds) => taken.expiry = Some(seconds.val()),
            Property::WillDelayInterval(seconds) => taken.will_delay = seconds.val(),
            Property::SubscriptionIdentifier(_) => {
                return refuse(
                    Reason::ProtocolError,
                    "a client publishes without a subscription identifier",
                );
            }
            Property::UserProperty(pair) => {
                taken.user.push((text(pair.key())?, text(pair.val())?));
                taken.passed_on.extend(property.to_continuous_buffer());
            }
            Property::ResponseTopic(topic) => {
                if topic.val().contains(['+', '#', '\0']) {
                    return refuse(Reason::ProtocolError, "the response topic has wildcards");
                }
                taken.passed_on.extend(property.to_continuous_buffer());
            }
            Property::ContentType(kind) => {
                text(kind.val())?;
                taken.passed_on.extend(property.to_continuous_buffer());
            }
            _ => taken.passed_on.extend(property.to_continuous_buffer()),
        }
    }
    Ok(taken)
}

fn packet_v3(raw: &RawPacket) -> Result<Packet, Refusal> {
    Ok(match raw.packet_type() {
        3 => {
            let PacketData::Publish(data) = &raw.data else {
                return refuse(Reason::Unspecified, "the packet cannot be read");
            };
            let read = v3_1_1::Publish::parse(raw.flags(), data.clone());
            let (packet, _) = read.map_err(|error| refusal(&error))?;
            Packet::Publish(Publish {
                qos: qos(packet.qos()),
                retain: packet.retain(),
                id: publish_identifier(packet.packet_id())?,
                topic: text(packet.topic_name())?,
                alias: None,
                expiry: None,
                properties: Vec::new(),
                user: Vec::new(),
                payload: packet.payload().as_slice().to_vec(),
            })
        }
        4 => Packet::Puback(identifier(parsed(raw, v3_1_1::Puback::parse)?.packet_id())?),
        8 => {
            let packet = parsed(raw, v3_1_1::Subscribe::parse)?;
            let mut entries = Vec::new();
            for entry in packet.entries() {
                entries.push(Entry {
                    filter: text(entry.topic_filter())?,
                    qos: qos(entry.sub_opts().qos()),
                    no_local: false,
                    retain_as_published: false,
                    retain_handling: 0,
                });
            }
            Packet::Subscribe(Subscribe {
                id: identifier(packet.packet_id())?,
                identifier: None,
                user: Vec::new(),
                entries,
            })
        }
        10 => {
            let packet = parsed(raw, v3_1_1::Unsubscribe::parse)?;
            let filters = packet.entries().iter().map(|filter| text(filter.as_str()));
            Packet::Unsubscribe(Unsubscribe {
                id: identifier(packet.packet_id())?,
                filters: filters.collect::<Result<_, _>>()?,
            })
        }
        12 => parsed(raw, v3_1_1::Pingreq::parse).map(|_| Packet::Pingreq)?,
        14 => {
            parsed(raw, v3_1_1::Disconnect::parse)?;
            Packet::Disconnect(Disconnect {
                reason: 0,
                session_expiry: None,
            })
        }
        kind => return unexpected(kind),
    })
}

fn publish_identifier(id: Option<u16>) -> Result<u16, Refusal> {
    id.map_or(Ok(0), identifier)
}

fn unexpected<T>(kind: u8) -> Result<T, Refusal> {
    match kind {
        5..=7 => refuse(Reason::ProtocolError, "no QoS 2: the Maximum QoS is 1"),
        15 => refuse(Reason::ProtocolError, "no authentication was begun"),
        _ => refuse(Reason::ProtocolError, "clients do not send this packet"),
    }
}

fn packet_v5(raw: &RawPacket) -> Result<Packet, Refusal> {
    Ok(match raw.packet_type() {
        3 => Packet::Publish(publish_v5(raw)?),
        4 => Packet::Puback(identifier(parsed(raw, v5_0::Puback::parse)?.packet_id())?),
        8 => Packet::Subscribe(subscribe_v5(raw)?),
        10 => {
            let packet = parsed(raw, v5_0::Unsubscribe::parse)?;
            let filters = packet.entries().iter().map(|filter| text(filter.as_str()));
            Packet::Unsubscribe(Unsubscribe {
                id: identifier(packet.packet_id())?,
                filters: filters.collect::<Result<_, _>>()?,
            })
        }
        12 => parsed(raw, v5_0::Pingreq::parse).map(|_| Packet::Pingreq)?,
        14 => {
            let packet = parsed(raw, v5_0::Disconnect::parse)?;
            let properties = packet.props().iter().flatten();
            let mut expiries = properties.filter_map(|property| match property {
                Property::SessionExpiryInterval(seconds) => Some(seconds.val()),
                _ => None,
            });
            Packet::Disconnect(Disconnect {
                reason: packet.reason_code().map_or(0, |reason| reason as u8),
                session_expiry: expiries.next(),
            })
        }
        kind => return unexpected(kind),
    })
}

fn publish_v5(raw: &RawPacket) -> Result<Publish, Refusal> {
    let PacketData::Publish(data) = &raw.data else {
        return refuse(Reason::Unspecified, "the packet cannot be read");
    };
    let read = v5_0::Publish::parse(raw.flags(), data.clone());
    let (packet, _) = read.map_err(|error| refusal(&error))?;
    let id_len = if packet.packet_id().is_some() { 2 } else { 0 };
    if data.len() < 2 + packet.topic_name().len() + id_len + 1 {
        return refuse(Reason::MalformedPacket, "PUBLISH has no properties' length");
    }
    let taken = take_properties(packet.props())?;
    Ok(Publish {
        qos: qos(packet.qos()),
        retain: packet.retain(),
        id: publish_identifier(packet.packet_id())?,
        topic: text(packet.topic_name())?,
        alias: taken.alias,
        expiry: taken.expiry,
        properties: taken.passed_on,
        user: taken.user,
        payload: packet.payload().as_slice().to_vec(),
    })
}

fn subscribe_v5(raw: &RawPacket) -> Result<Subscribe, Refusal> {
    let packet = parsed(raw, v5_0::Subscribe::parse)?;
    let mut subscribe = Subscribe {
        id: identifier(packet.packet_id())?,
        identifier: None,
        user: Vec::new(),
        entries: Vec::new(),
    };
    for property in packet.props() {
        match property {
            Property::SubscriptionIdentifier(id) => {
                let former = subscribe.identifier.replace(id.val());
                if id.val() == 0 || former.is_some() {
                    let why = "one subscription identifier, which is not 0";
                    return refuse(Reason::ProtocolError, why);
                }
            }
            Property::UserProperty(pair) => {
                subscribe.user.push((text(pair.key())?, text(pair.val())?));
            }
            _ => {}
        }
    }
    for entry in packet.entries() {
        let options = entry.sub_opts();
        let filter = text(entry.topic_filter())?;
        if options.nl() && filter.starts_with("$share/") {
            return refuse(Reason::ProtocolError, "a shared subscription with No Local");
        }
        subscribe.entries.push(Entry {
            filter,
            qos: qos(options.qos()),
            no_local: options.nl(),
            retain_as_published: options.rap(),
            retain_handling: match options.rh() {
                RetainHandling::SendRetained => 0,
                RetainHandling::SendRetainedIfNotExists => 1,
                RetainHandling::DoNotSendRetained => 2,
            },
        });
    }
    Ok(subscribe)
}
