// The rdkafka crate. What it does is in ../../../stages.py.

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{json, Value};
use std::time::{Duration, Instant};

const BOOKED: [&str; 4] = ["booked 0", "booked 1", "booked 2", "end"];

type Outcome = Result<Value, Failed>;

struct Failed(String, String);

impl From<KafkaError> for Failed {
    fn from(error: KafkaError) -> Self {
        let code = error.rdkafka_error_code().map(|code| format!("{code:?}"));
        Failed(code.unwrap_or_else(|| "KafkaError".into()), error.to_string())
    }
}

/// The bound of the tests, tests/harness/waiting.py.
fn wait() -> Duration {
    let given = std::env::var("BARNABAS_TEST_PATIENCE").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs_f64(given.unwrap_or(90.0))
}

fn late(what: &str) -> Failed {
    Failed("Timeout".into(), format!("waited {} s for {what}", wait().as_secs()))
}

fn settings(bootstrap: &str, more: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("message.timeout.ms", &wait().as_millis().to_string()).set("log_level", "0");
    for (name, value) in more {
        config.set(*name, *value);
    }
    config
}

fn consumer(bootstrap: &str, group: &str) -> Result<BaseConsumer, KafkaError> {
    let own = [("group.id", group), ("auto.offset.reset", "earliest"), ("enable.auto.commit", "false")];
    let mut config = settings(bootstrap, &own);
    config.remove("message.timeout.ms");
    config.create()
}

fn read(consumer: &BaseConsumer, count: usize) -> Result<Vec<String>, Failed> {
    let end = Instant::now() + wait();
    let mut values = vec![];
    while values.len() < count {
        if Instant::now() > end {
            return Err(late("records"));
        }
        if let Some(message) = consumer.poll(Duration::from_millis(300)) {
            values.push(String::from_utf8_lossy(message?.payload().unwrap_or(b"")).into_owned());
        }
    }
    Ok(values)
}

fn committed(consumer: &BaseConsumer, topic: &str, partition: i32) -> Result<i64, KafkaError> {
    let mut asked = TopicPartitionList::new();
    asked.add_partition(topic, partition);
    let found = consumer.committed_offsets(asked, wait())?;
    Ok(match found.find_partition(topic, partition).map(|each| each.offset()) {
        Some(Offset::Offset(offset)) => offset,
        _ => 0,
    })
}

fn send(producer: &BaseProducer, topic: &str, partition: i32, value: &str) -> Result<(), Failed> {
    let record: BaseRecord<str, str> = BaseRecord::to(topic).partition(partition).payload(value);
    producer.send(record).map_err(|(error, _)| error.into())
}

fn group(bootstrap: &str, run: &str) -> Outcome {
    let (topic, group) = (format!("{run}-orders"), format!("{run}-group"));
    let (mut seen, mut sums) = (vec![], vec![]);
    for word in ["plain", "gzip"] {
        let codec = if word == "gzip" { "gzip" } else { "none" };
        let producer: BaseProducer = settings(bootstrap, &[("compression.type", codec), ("linger.ms", "20")]).create()?;
        for number in 0..10 {
            send(&producer, &topic, number % 2, &format!("{word} {number}"))?;
        }
        producer.flush(wait())?;
        let member = consumer(bootstrap, &group)?;
        member.subscribe(&[&topic])?;
        let mut values = read(&member, 10)?;
        values.sort();
        member.commit_consumer_state(CommitMode::Sync)?;
        sums.push(committed(&member, &topic, 0)? + committed(&member, &topic, 1)?);
        seen.push(values);
    }
    Ok(json!({"first": seen[0], "second": seen[1], "committed": sums}))
}

fn transactions(bootstrap: &str, run: &str) -> Outcome {
    let (topic, source, ledger) = (format!("{run}-booked"), format!("{run}-orders"), format!("{run}-ledger"));
    let producer: BaseProducer = settings(bootstrap, &[("transactional.id", &format!("{run}-tx"))])
        .create_with_context(DefaultProducerContext)?;
    let reader = consumer(bootstrap, &ledger)?;
    producer.init_transactions(wait())?;
    producer.begin_transaction()?;
    for value in &BOOKED[..3] {
        send(&producer, &topic, 0, value)?;
    }
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(&source, 0, Offset::Offset(7))?;
    let metadata = reader.group_metadata().ok_or_else(|| late("the group's metadata"))?;
    producer.send_offsets_to_transaction(&offsets, &metadata, wait())?;
    producer.commit_transaction(wait())?;
    producer.begin_transaction()?;
    send(&producer, &topic, 0, "dropped")?;
    producer.flush(wait())?;
    producer.abort_transaction(wait())?;
    producer.begin_transaction()?;
    send(&producer, &topic, 0, "end")?;
    producer.commit_transaction(wait())?;
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(&topic, 0, Offset::Beginning)?;
    reader.assign(&from)?;
    let values = read(&reader, BOOKED.len())?;
    Ok(json!({"committed": values, "offset": committed(&reader, &source, 0)?}))
}

fn admin(bootstrap: &str, run: &str) -> Outcome {
    let topic = format!("{run}-made");
    let client: AdminClient<DefaultClientContext> = settings(bootstrap, &[]).create()?;
    let options = AdminOptions::new().request_timeout(Some(wait())).operation_timeout(Some(wait()));
    let made = NewTopic::new(&topic, 3, TopicReplication::Fixed(1)).set("retention.ms", "3600000");
    let coded = |(_, code)| Failed(format!("{code:?}"), format!("{code}"));
    for result in futures_executor::block_on(client.create_topics([&made], &options))? {
        result.map_err(coded)?;
    }
    let end = Instant::now() + wait();
    let partitions = loop {
        let listed = client.inner().fetch_metadata(Some(&topic), wait())?;
        match listed.topics().first() {
            Some(of) if !of.partitions().is_empty() => break of.partitions().len(),
            _ if Instant::now() > end => return Err(late("the topic")),
            _ => {}
        }
    };
    let asked = ResourceSpecifier::Topic(&topic);
    let described = futures_executor::block_on(client.describe_configs([&asked], &options))?.remove(0);
    let described = described.map_err(|code| Failed(format!("{code:?}"), format!("{code}")))?;
    let retention = described.get("retention.ms").and_then(|entry| entry.value.clone());
    for result in futures_executor::block_on(client.delete_topics(&[&topic], &options))? {
        result.map_err(coded)?;
    }
    Ok(json!({"partitions": partitions, "retention": retention, "deleted": true}))
}

fn main() {
    let given: Vec<String> = std::env::args().collect();
    let library = rdkafka::util::get_rdkafka_version().1;
    let mut said = json!({"client": format!("rdkafka {} (librdkafka {library})", env!("CRATE"))});
    for (name, stage) in [("group", group as fn(&str, &str) -> Outcome), ("transactions", transactions), ("admin", admin)] {
        said[name] = stage(&given[1], &given[2]).unwrap_or_else(|Failed(name, text)| json!({"error": name, "text": text}));
    }
    println!("{said}");
    std::process::exit(0);
}
