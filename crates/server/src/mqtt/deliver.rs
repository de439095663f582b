//! PUBLISH to clients.

use std::sync::Arc;

use esker::Durability;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::Connection;
use super::encode::Delivery;
use super::filter::Filter;
use super::message::{Clock, Shared};
use super::reason::Refusal;
use super::router;
use super::session::Unacknowledged;
use super::source::{self, Source};
use crate::access::Role;
use crate::metrics::Dropped;

/// The most publications that are sent at once, and about how many bytes.
const MOST: usize = 256;
const MOST_BYTES: usize = 64 << 10;

/// The most publications that are taken of a subscription before the next one has its turn.
const MOST_OF_ONE: usize = 64;

/// The most retained messages that are looked at with one call.
const LOOKS: usize = 2000;

/// What is to be sent.
type Batch = Vec<(Shared, Delivery)>;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Prepares what the subscriptions have for sending. Returns true if there is more.
    pub(super) async fn deliver(&mut self) -> Result<bool, Refusal> {
        let mut batch = Batch::new();
        let mut bytes = 0;
        if !self.is_repeated {
            self.is_repeated = true;
            self.repeat(&mut batch).await?;
        }
        // What is awaited in between does not end a turn.
        let mut turns = 0;
        while batch.len() < MOST && bytes < MOST_BYTES && turns < MOST {
            turns += 1;
            let Some(number) = self.wakeup.take_after(self.last) else {
                break;
            };
            self.last = number;
            let before = batch.len();
            self.deliver_of(number, &mut batch).await?;
            let new = batch.get(before..).unwrap_or_default();
            bytes += new.iter().map(|(message, _)| message.size()).sum::<usize>();
        }
        if batch.is_empty() {
            return Ok(self.wakeup.has_some());
        }
        if self.session.is_stored() && batch.iter().any(|(_, delivery)| delivery.qos > 0) {
            self.write_record(Durability::Os).await?;
        }
        let clock = self.mqtt.clock();
        let mqtt = self.mqtt.clone();
        let mut sent = [0, 0];
        for (message, delivery) in batch {
            let is_sent = (self.encoder).publish(&mut self.out, &message, delivery, clock);
            if !is_sent {
                mqtt.measured().dropped(Dropped::TooLarge);
                if delivery.qos > 0 {
                    // The client takes no packet of this size: as if it had acknowledged it.
                    self.session.acknowledge(delivery.id);
                }
            } else if let Some(sent) = sent.get_mut(usize::from(delivery.qos)) {
                *sent += 1;
            }
        }
        for (qos, publications) in (0..).zip(sent) {
            mqtt.measured().sent(qos, publications);
        }
        Ok(self.wakeup.has_some())
    }

    /// Adds what one subscription has.
    async fn deliver_of(&mut self, number: u32, batch: &mut Batch) -> Result<(), Refusal> {
        let room = self
            .receive_maximum
            .saturating_sub(self.session.packets.len());
        let Some(of) = self.session.subscriptions.get(&number) else {
            return Ok(());
        };
        let (source, is_shared) = (of.source.clone(), of.is_shared());
        let most = if of.qos == 0 {
            MOST_OF_ONE
        } else {
            room.min(MOST_OF_ONE)
        };
        if most == 0 {
            self.blocked.insert(number);
            if is_shared {
                source.pause(&self.wakeup, true);
            }
            return Ok(());
        }
        if let Some(after) = of.retained.clone() {
            let filter = of.filter.clone();
            return self
                .deliver_retained(number, filter, after, most, batch)
                .await;
        }
        let taken = source.take(most, is_shared && of.qos > 0);
        if taken.messages.is_empty() {
            if self.read_page(&source).await? {
                self.wakeup.add(number);
            }
            return Ok(());
        }
        if taken.has_more {
            self.wakeup.add(number);
            if is_shared {
                source.pass_on();
            }
        }
        let clock = self.mqtt.clock();
        for message in taken.messages {
            self.add(number, message, clock, batch);
        }
        Ok(())
    }

    /// Reads the next page of a source that is behind. Returns false if there is none to be read.
    async fn read_page(&mut self, source: &Arc<Source>) -> Result<bool, Refusal> {
        let Some(read) = source.begin() else {
            return Ok(false);
        };
        // The source can be read again, whatever becomes of this connection.
        let reading = Reading(source);
        let of_call = source.clone();
        let page = self.mqtt.call(move |mqtt| {
            let position = mqtt.kept.position();
            Ok(of_call.read(&mqtt.broker, &read, position)?)
        });
        let page = page.await?;
        std::mem::forget(reading);
        source.finish(Some(page));
        Ok(true)
    }

    async fn deliver_retained(
        &mut self,
        number: u32,
        filter: Filter,
        after: String,
        most: usize,
        batch: &mut Batch,
    ) -> Result<(), Refusal> {
        let clock = self.mqtt.clock();
        let found = self.mqtt.call(move |mqtt| {
            let wants = |topic: &str| router::matches(&filter.text, topic);
            let limits = (most, LOOKS);
            (mqtt.kept).retained_after(filter.fixed(), &after, limits, clock, wants)
        });
        let (messages, next) = found.await?;
        if let Some(of) = self.session.subscriptions.get_mut(&number) {
            of.retained = next;
        }
        for message in messages {
            self.add(number, Arc::new(message), clock, batch);
        }
        self.wakeup.add(number);
        Ok(())
    }

    /// Adds a publication, if the subscription receives it.
    fn add(&mut self, number: u32, message: Shared, clock: Clock, batch: &mut Batch) {
        let Some(of) = self.session.subscriptions.get(&number) else {
            return;
        };
        let is_own = self.publisher.is_some() && message.meta.publisher == self.publisher;
        let qos = message.meta.qos.min(of.qos);
        let is_held = of.is_shared() && of.qos > 0;
        let is_over = message.is_over(clock);
        if is_over {
            self.mqtt.measured().dropped(Dropped::Expired);
        }
        let is_unwanted = is_over || (of.no_local && is_own);
        if is_held && (qos == 0 || is_unwanted) {
            of.source.settle(message.seq);
        }
        if is_unwanted {
            return;
        }
        let mut delivery = Delivery {
            qos,
            id: 0,
            dup: qos > 0 && message.may_be_duplicate,
            retain: message.is_retained || (of.retain_as_published && message.meta.retain),
            identifier: of.identifier,
        };
        if qos > 0 {
            let (is_shared, retained) = (of.is_shared(), message.is_retained);
            delivery.id = self.session.next_id();
            self.session.packets.push(Unacknowledged {
                id: delivery.id,
                of: number,
                seq: message.seq,
                message: is_shared.then(|| message.clone()),
                retained: retained.then(|| message.topic.clone()),
            });
        }
        batch.push((message, delivery));
    }

    /// Sends the packets of the stored session again, also those of subscriptions that have ended.
    async fn repeat(&mut self, batch: &mut Batch) -> Result<(), Refusal> {
        let packets = self.session.packets.iter().map(|packet| {
            let of = self.session.subscriptions.get(&packet.of);
            let kept = of.map(|of| (of.identifier, of.retain_as_published));
            let (identifier, as_published) = kept.unwrap_or_default();
            (
                packet.id,
                packet.seq,
                packet.retained.clone(),
                identifier,
                as_published,
            )
        });
        let packets: Vec<_> = packets.collect();
        let caller = self.caller.clone();
        let found = self.mqtt.call(move |mqtt| {
            let mut found = Vec::new();
            for (id, seq, retained, identifier, as_published) in &packets {
                let message = match retained {
                    Some(topic) => mqtt.kept.retained(topic)?.filter(|new| new.seq == *seq),
                    None => source::published(&mqtt.broker, *seq)?,
                };
                // Rights may have changed since.
                let is_allowed = |topic: &str| caller.may_topic(Role::Read, topic).is_ok();
                let Some(message) = message.filter(|message| is_allowed(&message.topic)) else {
                    continue;
                };
                let delivery = Delivery {
                    qos: 1,
                    id: *id,
                    dup: true,
                    retain: retained.is_some() || (*as_published && message.meta.retain),
                    identifier: *identifier,
                };
                found.push((Arc::new(message), delivery));
            }
            Ok(found)
        });
        *batch = found.await?;
        // What has expired meanwhile is not sent again.
        let is_found = |id| batch.iter().any(|(_, delivery)| delivery.id == id);
        self.session.packets.retain(|packet| is_found(packet.id));
        Ok(())
    }
}

/// A page that is being read; if it is dropped, the page was not read.
struct Reading<'s>(&'s Source);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.finish(None);
    }
}
