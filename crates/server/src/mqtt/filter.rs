//! Topic names and topic filters, as MQTT defines them.

use pubsub::{MAX_LEVELS, Topic, TopicFilter};

/// A topic filter of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    /// The name of the share, for a shared subscription.
    pub(super) share: Option<String>,
    /// The filter without `$share/NAME/`.
    pub(super) text: String,
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn parse(text: &str) -> Result<Filter, String> {
        let Some(shared) = text.strip_prefix("$share/") else {
            check_filter(text)?;
            let text = text.to_string();
            return Ok(Filter { share: None, text });
        };
        let (name, filter) = shared
            .split_once('/')
            .ok_or("a shared subscription is $share/NAME/FILTER")?;
        if name.is_empty() || name.contains(['+', '#']) {
            return Err("the name of a share is not empty and has no wildcards".to_string());
        }
        check_filter(filter)?;
        Ok(Filter {
            share: Some(name.to_string()),
            text: filter.to_string(),
        })
    }

    /// The topics for the broker.
    ///
    /// # Errors
    /// The broker's.
    pub(super) fn topics(&self) -> esker::Result<TopicFilter> {
        if self.text.contains(['+', '#']) {
            return self.text.parse();
        }
        Ok(TopicFilter::exact(self.text.parse::<Topic>()?))
    }

    /// The levels before the first wildcard: all that it matches is this topic or below it.
    pub(super) fn fixed(&self) -> &str {
        match self.text.find(['+', '#']) {
            None => &self.text,
            Some(wildcard) => {
                let before = self.text.get(..wildcard).unwrap_or("");
                before.strip_suffix('/').unwrap_or(before)
            }
        }
    }
}

fn check_filter(filter: &str) -> Result<(), String> {
    if filter.is_empty() {
        return Err("a topic filter has at least one character".to_string());
    }
    check_levels(filter)?;
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        match level {
            "+" => {}
            "#" if levels.peek().is_some() => {
                return Err("`#` is only allowed as the last level".to_string());
            }
            "#" => {}
            _ if level.contains(['+', '#']) => {
                return Err("a wildcard is a whole level".to_string());
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_levels(text: &str) -> Result<(), String> {
    if text.contains('\0') {
        return Err("a topic has no NUL character".to_string());
    }
    let levels = text.split('/').count();
    if levels > MAX_LEVELS {
        return Err(format!("a topic has at most {MAX_LEVELS} levels"));
    }
    Ok(())
}

/// Checks the topic of a publication.
///
/// # Errors
/// A sentence.
pub(super) fn check_topic(topic: &str) -> Result<(), String> {
    if topic.is_empty() {
        return Err("a topic has at least one character".to_string());
    }
    if topic.contains(['+', '#']) {
        return Err("a topic of a publication has no wildcards".to_string());
    }
    if topic.starts_with("$SYS/") || topic.starts_with("$share/") {
        return Err("topics below $SYS and $share are the server's".to_string());
    }
    check_levels(topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked_and_split() {
        let shared = Filter::parse("$share/workers/a/+/#").unwrap();
        assert_eq!(shared.share.as_deref(), Some("workers"));
        assert_eq!((shared.text.as_str(), shared.fixed()), ("a/+/#", "a"));
        for (filter, fixed) in [
            ("a/b", "a/b"),
            ("a/#", "a"),
            ("#", ""),
            ("+/a", ""),
            ("/+", ""),
        ] {
            assert_eq!(Filter::parse(filter).unwrap().fixed(), fixed, "{filter}");
        }
        let long = vec!["a"; MAX_LEVELS + 1].join("/");
        for wrong in [
            "",
            "a/#/b",
            "a+",
            "a/b#",
            "$share/x",
            "$share//a",
            "$share/+/a",
            "$share/x/",
            "a\0",
            &long,
        ] {
            assert!(Filter::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn topics_are_checked() {
        for right in ["a", "/", "a//b", "$other/x"] {
            assert_eq!(check_topic(right), Ok(()), "{right}");
        }
        for wrong in ["", "a/+", "#", "$SYS/x", "a\0"] {
            assert!(check_topic(wrong).is_err(), "{wrong}");
        }
    }
}
