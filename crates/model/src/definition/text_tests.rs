use super::*;
use crate::definition::Index;

fn index(text: &str) -> IndexText {
    text.parse().unwrap()
}

#[test]
fn indexes_are_read_as_people_write_them_and_print_as_that() {
    for (text, path, kind, ty, lenient) in [
        ("a", "a", IndexKind::Lazy, None, false),
        ("a.b:composite", "a.b", IndexKind::Composite, None, false),
        (
            "a:b:lazy:int",
            "a:b",
            IndexKind::Lazy,
            Some(Type::Int),
            false,
        ),
        (
            "at:embedded:time_ms",
            "at",
            IndexKind::Embedded,
            Some(Type::TimeMs),
            false,
        ),
        ("n?", "n", IndexKind::Lazy, None, true),
        (
            "n?:none:float",
            "n",
            IndexKind::None,
            Some(Type::Float),
            true,
        ),
        (
            r"is it\?:lazy:bool",
            "is it?",
            IndexKind::Lazy,
            Some(Type::Bool),
            false,
        ),
        (
            r"is it\??:lazy:bool",
            "is it?",
            IndexKind::Lazy,
            Some(Type::Bool),
            true,
        ),
        (
            "a?b:lazy:bool",
            "a?b",
            IndexKind::Lazy,
            Some(Type::Bool),
            false,
        ),
        ("p:spatial", "p", IndexKind::Spatial(Layout::Z), None, false),
        (
            "p:spatial:mbr:plane",
            "p",
            IndexKind::Spatial(Layout::Mbr),
            Some(Type::PlanePoint),
            false,
        ),
    ] {
        let found = index(text);
        assert_eq!(
            found.path.names().last(),
            Path::parse(path).unwrap().names().last(),
            "{text}"
        );
        assert_eq!(
            (found.kind, found.ty, found.lenient),
            (kind, ty, lenient),
            "{text}"
        );
        assert_eq!(index(&found.to_string()), found, "{text}");
    }
    for (text, kind, ty, printed) in [
        ("e:unique", IndexKind::Lazy, None, "e:lazy:unique"),
        (
            "e:composite:unique",
            IndexKind::Composite,
            None,
            "e:composite:unique",
        ),
        (
            "e?:recent:string:unique",
            IndexKind::Recent,
            Some(Type::String),
            "e?:recent:string:unique",
        ),
        ("unique:unique", IndexKind::Lazy, None, "unique:lazy:unique"),
    ] {
        let found = index(text);
        assert_eq!(
            (found.kind, found.ty, found.unique),
            (kind, ty, true),
            "{text}"
        );
        assert_eq!(found.to_string(), printed);
        assert_eq!(index(printed), found);
        let def = found.to_def(Type::String);
        assert!(def.unique && found.agrees(&def) && IndexText::of(&def).unique);
        assert!(!index("e:composite").unique && !index("e:composite").agrees(&def));
    }
    let prefix = index("s:recent:string:prefix");
    assert_eq!(prefix.tokenizer, Tokenizer::Prefix);
    assert_eq!(prefix.to_string(), "s:recent:string:prefix");
    let def = index("n?:lazy:int").to_def(Type::Int);
    assert!(def.lenient && IndexText::of(&def).to_string() == "n?:lazy:int");
    assert!(index("n?:lazy").agrees(&def) && !index("n:lazy").agrees(&def));
    let millis = index("at:lazy:time_ms").to_def(Type::TimeMs);
    assert!(index("at:lazy:time").agrees(&millis) && !index("at:lazy:time_s").agrees(&millis));
}

#[test]
fn mistakes_in_indexes_say_what_is_meant() {
    for (text, what) in [
        ("a:lzay", "did you mean `lazy`?"),
        ("at:time", "did you mean `at:lazy:time`?"),
        ("a:lazy:strnig", "did you mean `string`?"),
        ("a:lazy:timems", "did you mean `time_ms`?"),
        ("a..b:lazy", "a field name is empty"),
        ("p?:spatial", "cannot be lenient"),
        ("p:spatial:zz", "unknown layout or type `zz`"),
        ("", "a field name is empty"),
    ] {
        let error = text.parse::<IndexText>().unwrap_err();
        assert!(error.contains(what), "{text}: {error}");
    }
}

#[test]
fn keys_and_expiry_are_read() {
    let key: KeyText = "a.b".parse().unwrap();
    assert_eq!((key.ty, key.to_string().as_str()), (None, "a.b"));
    let key: KeyText = "id:string".parse().unwrap();
    assert_eq!(
        (key.ty, key.to_string().as_str()),
        (Some(KeyType::String), "id:string")
    );
    assert!(
        "id:strng"
            .parse::<KeyText>()
            .unwrap_err()
            .contains("did you mean `string`?")
    );
    let expires: ExpiresText = "until".parse().unwrap();
    assert_eq!((expires.ty, expires.to_string().as_str()), (None, "until"));
    let expires: ExpiresText = "a.until:time_us".parse().unwrap();
    assert_eq!(
        (expires.ty, expires.to_string().as_str()),
        (Some(Type::TimeUs), "a.until:time_us")
    );
    assert!(
        "until:int"
            .parse::<ExpiresText>()
            .unwrap_err()
            .contains("is not a type of times")
    );
}

#[test]
fn several_fields_are_a_compound_index() {
    let index = |text: &str| text.parse::<IndexText>();
    for (text, kind, unique) in [
        ("user,at", IndexKind::Lazy, false),
        ("user,at:composite", IndexKind::Composite, false),
        ("user.name,at:recent:unique", IndexKind::Recent, true),
        ("a,b,c:eager:compound", IndexKind::Eager, false),
        // Question marks and backslashes at the ends of names.
        (r"a\?,b\?:lazy", IndexKind::Lazy, false),
        (r"a\\,b\\\?,c:lazy", IndexKind::Lazy, false),
    ] {
        let found = index(text).unwrap();
        assert!(found.is_compound() && !found.is_open(), "{text}");
        assert_eq!((found.kind, found.unique), (kind, unique), "{text}");
        assert_eq!(index(&found.to_string()).unwrap(), found, "{text}");
        let def = found.to_def(Type::Compound);
        assert!(found.agrees(&def) && IndexText::of(&def) == found, "{text}");
    }
    assert_eq!(
        index("user,at:composite").unwrap().to_string(),
        "user,at:composite"
    );
    // A name with a comma, and a point of two fields.
    let one = index("a\\,b:lazy:string").unwrap();
    assert_eq!((one.is_compound(), one.ty), (false, Some(Type::String)));
    assert_eq!(one.path, Path::parse("a\\,b").unwrap());
    assert_eq!(one.to_string(), "a\\,b:lazy:string");
    for point in ["lon,lat:spatial", "lon,lat:none:point"] {
        let found = index(point).unwrap();
        assert!(!found.is_compound(), "{point}");
        assert_eq!(index(&found.to_string()).unwrap(), found, "{point}");
    }
    for (text, why) in [
        ("user,at:lazy:string", "leave :string out"),
        ("user,at?:lazy", "--index at?:none"),
        (r"user\\?,at:lazy", r"--index user\\?:none"),
        (r"a\\\,b,c:lazy", "cannot be part of a compound index"),
        ("user,a\\,b:lazy", "cannot be part of a compound index"),
        ("user,user:lazy", "only once"),
        ("user,:lazy", "empty"),
    ] {
        let error = index(text).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
    let mut all = vec![index("user,at").unwrap(), index("at:none:time_ms").unwrap()];
    IndexText::declare_parts(&mut all);
    let texts: Vec<String> = all.iter().map(IndexText::to_string).collect();
    assert_eq!(texts, ["user,at:lazy", "at:none:time_ms", "user:none"]);
}

#[test]
fn a_compound_index_needs_declared_fields_and_an_order_of_values() {
    let def = || DatasetDef::new("id", KeyType::Int).index("user", Index::none().string());
    let at = || def().index("at", Index::embedded().time());
    at().index("user,at", Index::composite().compound().unique())
        .validate()
        .unwrap();
    let timed = |index: Index| at().index("user,at", index);
    for (wrong, why) in [
        (
            def().index("user,at", Index::lazy().compound()),
            "`at` first",
        ),
        (
            timed(Index::embedded().compound()),
            "cannot be of several fields",
        ),
        (
            timed(Index::none().compound()),
            "cannot be of several fields",
        ),
        (
            timed(Index::lazy().compound().lenient()),
            "declared by itself",
        ),
        (
            timed(Index::lazy().compound().tokenizer(Tokenizer::Prefix)),
            "does not fit a compound index",
        ),
        (
            def()
                .index("p", Index::spatial())
                .index("user,p", Index::lazy().compound()),
            "of type point",
        ),
    ] {
        let error = wrong.validate().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
