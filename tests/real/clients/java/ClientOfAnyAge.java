import java.util.*;
import java.util.concurrent.Future;
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
    public static void main(String[] given) throws Exception {
        String bootstrap = given[0], topic = given[1];
        int count = Integer.parseInt(given[2]), total = 0;
        for (String codec : given[3].split(",")) {
            Map<String, Object> settings = AnyRelease.settings(bootstrap, "acks", "all", "compression.type", codec, "linger.ms", 20);
            if (given.length > 4) settings.put("enable.idempotence", Boolean.valueOf(given[4]));
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < count; i++)
                    sent.add(producer.send(new ProducerRecord<>(topic, i % 2, 1600000000000L + i, "k" + i, codec + " " + i)));
                for (Future<RecordMetadata> each : sent) each.get();
                total += count;
            }
        }
        for (int most : new int[] {total / 2, total - total / 2}) {
            Map<String, Object> settings = AnyRelease.settings(bootstrap, "group.id", "group-of-" + topic, "max.poll.records", 1);
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
                consumer.subscribe(Collections.singletonList(topic));
                for (ConsumerRecord<String, String> r : AnyRelease.read(consumer, most))
                    System.out.println(r.partition() + "\t" + r.offset() + "\t" + r.timestamp() + "\t" + r.key() + "\t" + r.value());
                consumer.commitSync();
                long sum = 0;
                for (int partition = 0; partition < 2; partition++) sum += AnyRelease.committed(consumer, new TopicPartition(topic, partition));
                System.out.println("committed\t" + sum);
            }
        }
    }
}
