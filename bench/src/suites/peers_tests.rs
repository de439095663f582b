use super::*;

fn job(subject: &str) -> Job {
    Job {
        suite: SUITE.to_string(),
        experiment: "test".to_string(),
        subject: subject.to_string(),
        repeat: 0,
        seed: 7,
        parameters: Value::Null,
        scratch: Default::default(),
    }
}

#[test]
fn every_subject_answers_like_the_model() {
    let options = Options {
        scale: 0.01,
        only: Vec::new(),
        out: Default::default(),
        repeat: 1,
        seed: 7,
        seed_set: None,
        past_memory: false,
    };
    for experiment in experiments(&options).all {
        for subject in experiment.subjects {
            if !crate::subjects::is_built(&subject) {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            let setup = Setup {
                dir: dir.path().to_path_buf(),
                cache_bytes: experiment.cache_bytes,
                direct: experiment.direct,
            };
            let checked = small_check(&job(&subject), &setup);
            assert_eq!(checked, Ok(()), "{subject} in {}", experiment.name);
        }
    }
}

#[test]
fn a_subject_that_lost_a_write_is_caught() {
    let dir = tempfile::tempdir().unwrap();
    let job = job("lmdb eager");
    let setup = Setup {
        dir: dir.path().to_path_buf(),
        cache_bytes: 1 << 20,
        direct: false,
    };
    let plan = Plan::new(7, Profile::synthetic(500), 500, 500, Mix::UPDATE_HEAVY);
    let mut session = Session::open(&job, &plan, &job.subject, &setup, BTreeMap::new()).unwrap();
    session.lose_a_write();
    let failure = session.check_writes(500, 5000).unwrap_err();
    assert!(failure.to_string().contains("answers wrongly"), "{failure}");
}
