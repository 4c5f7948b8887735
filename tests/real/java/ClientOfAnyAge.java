import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;

/**
 * A Java client of whatever release is on the class path: BOOTSTRAP TOPIC COUNT CODECS [enable.idempotence].
 *
 * Produces COUNT records with each codec, reads half in a group, commits, and resumes with the rest as the next member.
 * A line for each record: partition, offset, timestamp, key, value; then "committed" and the sum of committed offsets.
 */
public class ClientOfAnyAge {
    static Map<String, Object> with(String bootstrap, Object... settings) {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < settings.length; i += 2) all.put((String) settings[i], settings[i + 1]);
        return all;
    }

    /** poll(long) is gone since 4.0, poll(Duration) came with 2.0. */
    @SuppressWarnings("unchecked")
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        try {
            return (ConsumerRecords<String, String>) KafkaConsumer.class.getMethod("poll", java.time.Duration.class)
                .invoke(consumer, java.time.Duration.ofMillis(200));
        } catch (NoSuchMethodException old) {
            return (ConsumerRecords<String, String>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 200L);
        }
    }

    /** Of one partition until 4.0, of several since 2.4. */
    @SuppressWarnings("unchecked")
    static OffsetAndMetadata committed(KafkaConsumer<String, String> consumer, TopicPartition of) throws Exception {
        try {
            return ((Map<TopicPartition, OffsetAndMetadata>) KafkaConsumer.class.getMethod("committed", Set.class)
                .invoke(consumer, Collections.singleton(of))).get(of);
        } catch (NoSuchMethodException old) {
            return (OffsetAndMetadata) KafkaConsumer.class.getMethod("committed", TopicPartition.class).invoke(consumer, of);
        }
    }

    public static void main(String[] given) throws Exception {
        String bootstrap = given[0], topic = given[1], text = "org.apache.kafka.common.serialization.String";
        int count = Integer.parseInt(given[2]), total = 0;
        boolean idempotent = given.length > 4;
        for (String codec : given[3].split(",")) {
            Map<String, Object> settings = with(bootstrap, "acks", "all", "compression.type", codec, "linger.ms", 20,
                "key.serializer", text + "Serializer", "value.serializer", text + "Serializer");
            if (idempotent) settings.put("enable.idempotence", Boolean.valueOf(given[4]));
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
                List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < count; i++)
                    sent.add(producer.send(new ProducerRecord<>(topic, i % 2, 1600000000000L + i, "k" + i, codec + " " + i)));
                for (java.util.concurrent.Future<RecordMetadata> each : sent) each.get();
                total += count;
            }
        }
        for (int most : new int[] {total / 2, total - total / 2}) {
            Map<String, Object> settings = with(bootstrap, "group.id", "group-of-" + topic, "auto.offset.reset", "earliest",
                "enable.auto.commit", false, "max.poll.records", 1,
                "key.deserializer", text + "Deserializer", "value.deserializer", text + "Deserializer");
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
                consumer.subscribe(Collections.singletonList(topic));
                long deadline = System.currentTimeMillis() + 60000;
                for (int read = 0; read < most; ) {
                    if (System.currentTimeMillis() > deadline) throw new IllegalStateException("read " + read + " in 60 s");
                    for (ConsumerRecord<String, String> r : poll(consumer)) {
                        System.out.println(r.partition() + "\t" + r.offset() + "\t" + r.timestamp() + "\t" + r.key() + "\t" + r.value());
                        read++;
                    }
                }
                consumer.commitSync();
                long sum = 0;
                for (int partition = 0; partition < 2; partition++) {
                    OffsetAndMetadata at = committed(consumer, new TopicPartition(topic, partition));
                    sum += at == null ? 0 : at.offset();
                }
                System.out.println("committed\t" + sum);
            }
        }
    }
}
