//! The answer of a query in the order of its request. A cluster gives candidates in an order of
//! writes, or in none: for an order of fields or keys all answers are read, and the first ones are
//! sorted within a bound of memory ([`ROOM`]). If there are more, all are read again for those
//! behind, as of the same start.

use std::sync::Arc;
use std::vec;

use esker_model::query::{Order, PageToken, Ranking, Request};
use esker_model::record::RecordRef;
use esker_model::schema::Projection;
use esker_model::{Key, Record};

use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::find::{Explained, Query};
use crate::given::Given;
use crate::hit::Hit;
use crate::ranked::{FirstInRoom, ROOM, Room};
use crate::shared::Shared;

/// An answer of a query: records, or keys alone.
pub struct Answer {
    query: Query,
    sorting: Option<Sorting>,
    /// Answers that the offset leaves out.
    skip: usize,
    projection: Option<Projection>,
    answers: u64,
    is_over: bool,
}

/// An answer in an order of fields or keys.
struct Sorting {
    ranking: Ranking,
    /// The request of each pass.
    request: Request,
    /// What passes before this one have given.
    given: Given,
    shared: Arc<Shared>,
    /// The answers that are still wanted.
    left: usize,
    /// The answers of this pass that are left, once they are sorted.
    rows: Option<vec::IntoIter<(Vec<u8>, Hit)>>,
    /// True if there was no room for answers behind those of this pass.
    is_cut: bool,
    /// The rank of the last answer, or of the last one of the page before.
    last: Option<Vec<u8>>,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

impl Answer {
    pub(crate) fn new(shared: Arc<Shared>, bound: Arc<Bound>, request: &Request) -> Result<Answer> {
        let mut inner = request.clone();
        inner.limit = request.most();
        let sorting = if request.order.is_sorted() {
            let ranking = Ranking::new(&bound.shape, &request.order)?;
            let last = ranking.behind(inner.after.take().as_ref())?;
            let left = inner.limit.take().unwrap_or(usize::MAX);
            // Without fields the keys are enough.
            inner.keys_only &= request.order.fields().is_empty();
            inner.order = Order::Any;
            Some(Sorting {
                ranking,
                request: inner.clone(),
                given: Given::new(&shared),
                shared: shared.clone(),
                left,
                rows: None,
                is_cut: false,
                last,
            })
        } else {
            None
        };
        Ok(Answer {
            query: Query::new(shared, bound, &inner)?,
            sorting,
            skip: request.skip(),
            projection: (!request.select.is_empty()).then(|| Projection::new(&request.select)),
            answers: 0,
            is_over: false,
        })
    }

    /// The next record.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Damaged`].
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        let bound = self.query.bound.clone();
        let Some(hit) = self.next_hit()? else {
            return Ok(None);
        };
        let record = hit.record(&bound)?;
        Ok(Some(match &self.projection {
            Some(projection) => {
                let json = projection.apply(record.json())?;
                Record::from_json(record.key().clone(), record.seq(), &json)
            }
            None => record,
        }))
    }

    /// The next key.
    ///
    /// # Errors
    /// As [`Answer::next_record`].
    pub fn next_key(&mut self) -> Result<Option<Key>> {
        let ty = self.query.bound.key_type();
        let hit = self.next_hit()?;
        Ok(hit.map(|hit| Key::from_encoded(ty, hit.key)))
    }

    fn next_hit(&mut self) -> Result<Option<Hit>> {
        if self.is_over {
            return Ok(None);
        }
        loop {
            let next = match &mut self.sorting {
                Some(sorting) => sorting.next(&mut self.query),
                None => self.query.next(),
            };
            self.is_over = !matches!(next, Ok(Some(_)));
            let hit = next?;
            if hit.is_none() || self.skip == 0 {
                self.answers += u64::from(hit.is_some());
                return Ok(hit);
            }
            self.skip -= 1;
        }
    }

    /// How the query is answered, and what it has read so far.
    pub fn explained(&self) -> Explained {
        Explained {
            answers: self.answers,
            ..self.query.explained()
        }
    }

    /// The place of the last answer: a request continues behind it, in any process.
    pub fn token(&self) -> Option<PageToken> {
        match &self.sorting {
            Some(sorting) => sorting.last.clone().map(PageToken::Row),
            None => self.query.last().map(PageToken::Write),
        }
    }
}

impl Sorting {
    fn next(&mut self, query: &mut Query) -> Result<Option<Hit>> {
        loop {
            if self.left == 0 {
                return Ok(None);
            }
            let rows = match &mut self.rows {
                Some(rows) => rows,
                None => {
                    let first = self.pass(query)?;
                    self.is_cut = first.is_cut();
                    let sorted: Vec<_> = first.finish().collect();
                    if self.is_cut {
                        let keys = sorted.iter().map(|(_, hit)| &hit.key);
                        keys.for_each(|key| self.given.note(&self.shared, key));
                    }
                    self.rows.insert(sorted.into_iter())
                }
            };
            if let Some((rank, hit)) = rows.next() {
                self.last = Some(rank);
                self.left -= 1;
                return Ok(Some(hit));
            }
            if !self.is_cut {
                return Ok(None);
            }
            query.begin_again(&self.request)?;
            self.rows = None;
        }
    }

    /// Reads all answers; the first ones behind the last that was given.
    fn pass(&mut self, query: &mut Query) -> Result<FirstInRoom<Vec<u8>, Hit>> {
        let mut first = FirstInRoom::new(Room {
            items: ROOM.items.min(self.left),
            ..ROOM
        });
        let mut rank = Vec::new();
        while let Some(hit) = query.next()? {
            if self.given.has(&hit.key) {
                continue;
            }
            let json: &[u8] = match hit.stored.as_slice() {
                [] => &[],
                stored => RecordRef::body_of(stored)
                    .ok_or_else(|| Error::Damaged("a stored record is malformed".to_string()))?,
            };
            self.ranking.rank(json, &hit.key, &mut rank);
            if self.last.as_ref().is_none_or(|last| rank > *last) {
                let bytes = rank.len() + hit.key.len() + hit.stored.len();
                first.add(rank.clone(), bytes, hit);
            }
        }
        Ok(first)
    }
}
