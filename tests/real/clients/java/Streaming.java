import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

/** Counts the words of one topic into another with Kafka Streams (exactly once, stores in memory, through a repartition
 *  topic), and prints the counts. Arguments: bootstrap, application id, topic of words, topic of counts, group.protocol, folder for
 *  its state. */
public class Streaming {
    static final String[] WORDS = "a b a c a b".split(" ");

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = AnyRelease.settings(args[0], "group.id", args[1] + "-reader", "isolation.level", "read_committed");
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "bootstrap.servers", args[0], "application.id", args[1], "group.protocol", args[4], "processing.guarantee", "exactly_once_v2",
            "commit.interval.ms", 200, "replication.factor", 1, "state.dir", args[5],
            "dsl.store.suppliers.class", "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"));
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(args[2]).groupBy((key, word) -> word).count().toStream()
            .mapValues(count -> "" + count).to(args[3]);
        Map<String, String> counts = new TreeMap<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            for (String word : WORDS) producer.send(new ProducerRecord<>(args[2], word)).get();
        }
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings);
             KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            streams.start();
            consumer.subscribe(List.of(args[3]));
            long end = System.currentTimeMillis() + Patience.MS;
            while (!counts.equals(Map.of("a", "3", "b", "2", "c", "1")) && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> each : AnyRelease.poll(consumer)) counts.put(each.key(), each.value());
            }
        }
        System.out.println(counts);
    }
}
