//! A relay of one route of outbox to webhooks: outbox-relay-webhook DATABASE_URL URL ROUTE [LEASE_SECONDS [LANES]]
use postgres::{types::ToSql, Client, NoTls, Row};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{mpsc, mpsc::RecvTimeoutError, Arc, Mutex};
use std::time::{Duration, Instant};
use std::{collections::HashMap, env, thread};
use ureq::{Error, ErrorKind};

const CLAIM: &str = "SELECT token, id::text,
    CASE WHEN aggregate_id IS NULL THEN id::text ELSE json_build_array(aggregate_type, aggregate_id)::text END AS key,
    ARRAY(SELECT unnest(ARRAY[key, coalesce(value, '')]) FROM jsonb_each_text(headers)) ||
        ARRAY['webhook-id', id::text, 'Idempotency-Key', id::text, 'event-type', event_type, 'Content-Type',
            CASE WHEN body IS NULL THEN 'application/json' ELSE 'application/octet-stream' END] AS headers,
    coalesce(body, convert_to(payload::text, 'UTF8')) AS body
    FROM outbox_claim($1, 100, make_interval(secs => $2), current_setting('application_name')) ORDER BY seq";
const ACK: &str = "SELECT outbox_ack($1, $2::text[]::uuid[])";
const NACK: &str = "SELECT outbox_nack($1, $2::text::uuid, $3, make_interval(secs => $4))";

/// A connection that is made when it is needed, and again when it is broken.
struct Session(String, Option<Client>);

impl Session {
    fn query(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, postgres::Error> {
        if self.1.as_ref().map_or(true, Client::is_closed) {
            self.1 = Some(Client::connect(&self.0, NoTls)?);
        }
        self.1.as_mut().unwrap().query(sql, values)
    }

    /// Again until it is known to be done, the lease is somebody else's, or its time is over.
    fn settle(&mut self, until: &Mutex<Instant>, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<(), String> {
        while let Err(e) = self.query(sql, values) {
            if e.code().map_or(false, |told| !told.code().starts_with("57")) || Instant::now() > *until.lock().unwrap() {
                return Err(e.as_db_error().map_or(e.to_string(), ToString::to_string));
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

/// Refused by the receiver, which may have said when to try again; or it is out of reach.
struct Failure(String, Option<f64>, bool);

/// Posts a message. The receiver knows a copy of it by its webhook-id.
fn post(agent: &ureq::Agent, url: &str, m: &Row) -> Result<(), Failure> {
    let headers: Vec<String> = m.get("headers");
    let request = headers.chunks(2).fold(agent.post(url), |request, pair| request.set(&pair[0], &pair[1]));
    match request.send_bytes(m.get("body")) {
        Ok(answer) if answer.status() < 300 => Ok(()),
        Ok(answer) | Err(Error::Status(_, answer)) => {
            let after = answer.header("Retry-After").and_then(|seconds| seconds.parse::<u32>().ok());
            Err(Failure(format!("{} {}", answer.status(), answer.status_text()), after.map(|s| f64::from(s).min(86400.0)), true))
        }
        // a time-out or a reset may be this message's fault
        Err(e) => Err(Failure(e.to_string(), None, ![ErrorKind::Dns, ErrorKind::ConnectionFailed].contains(&e.kind()))),
    }
}

struct Relay {
    url: String,
    route: String,
    lease: f64,
    lanes: usize,
    stop: Arc<AtomicBool>,
}

impl Relay {
    /// One lease: lanes post, this thread alone talks to the database. Returns the number of messages.
    fn relay(&self, db: &mut Session, agent: &ureq::Agent) -> Result<usize, String> {
        let lease = Duration::from_secs_f64(self.lease);
        let mut since = Instant::now(); // the lease lasts from here, or from later on
        let rows = db.query(CLAIM, &[&self.route, &self.lease]).map_err(|e| e.as_db_error().map_or(e.to_string(), ToString::to_string))?;
        let Some(token) = rows.first().map(|m| m.get::<_, i64>("token")) else { return Ok(0) };
        let mut keys = HashMap::<String, Vec<&Row>>::new();
        rows.iter().for_each(|m| keys.entry(m.get("key")).or_default().push(m));
        let (work, until, held) = (Mutex::new(keys.into_values()), Mutex::new(since + lease), AtomicBool::new(true));
        let fits = || !self.stop.load(SeqCst) && Instant::now() + lease / 6 < *until.lock().unwrap();
        let may = || held.fetch_and(fits(), SeqCst) && held.load(SeqCst);
        let lane = |outcomes: mpsc::Sender<(String, Result<(), Failure>)>| {
            while let Some(key) = { work.lock().unwrap().next() } {
                for m in key.into_iter().take_while(|_| may()) {
                    let outcome = post(agent, &self.url, m);
                    let failed = outcome.is_err();
                    outcomes.send((m.get("id"), outcome)).unwrap();
                    if failed {
                        break; // nothing of a key overtakes
                    }
                }
            }
        };
        let (mut unreachable, mut lost, mut acked) = (Ok(()), Ok(()), Vec::new());
        let mut settle = |sql: &str, values: &[&(dyn ToSql + Sync)]| {
            lost = lost.clone().and_then(|()| db.settle(&until, sql, values));
            held.fetch_and(lost.is_ok(), SeqCst);
        };
        thread::scope(|threads| {
            let (sender, outcomes) = mpsc::channel();
            for sender in vec![sender; self.lanes] {
                threads.spawn(|| lane(sender));
            }
            while let Some(first) = match outcomes.recv_timeout(lease / 4) {
                Err(RecvTimeoutError::Disconnected) => None,
                first => Some(first.ok()),
            } {
                if since.elapsed() > lease / 4 {
                    since = Instant::now();
                    settle("SELECT outbox_extend($1, make_interval(secs => $2))", &[&token, &self.lease]);
                    *until.lock().unwrap() = since + lease;
                }
                for (id, outcome) in first.into_iter().chain(outcomes.try_iter()) {
                    match outcome {
                        Ok(()) => acked.push(id),
                        Err(Failure(why, after, true)) => settle(NACK, &[&token, &id, &why, &after]),
                        Err(Failure(why, ..)) => unreachable = Err(why),
                    }
                }
                held.fetch_and(unreachable.is_ok(), SeqCst);
                if acked.len() >= 25 {
                    settle(ACK, &[&token, &std::mem::take(&mut acked)]);
                }
            }
        });
        if !acked.is_empty() {
            settle(ACK, &[&token, &acked]);
        }
        if !may() {
            settle("SELECT outbox_release($1)", &[&token]); // others may have the rest at once
        }
        lost.and(unreachable).and(Ok(rows.len()))
    }
}

fn main() {
    let args: Vec<String> = env::args().collect();
    let number = |i: usize, usual| args.get(i).map_or(usual, |s| s.parse().expect("a number"));
    let (lease, lanes) = (number(4, 30.0), number(5, 8.0) as usize);
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, stop.clone()).expect("a signal handler");
    let agent = ureq::AgentBuilder::new().timeout(Duration::from_secs_f64(lease / 6.0)).redirects(0).build();
    let relay = Relay { url: args[2].clone(), route: args[3].clone(), lease, lanes, stop };
    let (mut db, mut backoff) = (Session(args[1].clone(), None), 0);
    while !relay.stop.load(SeqCst) {
        let claimed = relay.relay(&mut db, &agent).map_err(|e| eprintln!("{e}"));
        backoff = if claimed.is_err() { (2 * backoff + 100).min(5000) } else { 0 };
        thread::sleep(Duration::from_millis(if claimed == Ok(0) { 100 } else { backoff }));
    }
}
